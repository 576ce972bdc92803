package demo

import (
	"net/http"
	"strings"
	"testing"
)

// web/browser tests the changes of folded events; here nothing is folded.
func TestChangesOfAnEvent(t *testing.T) {
	f := newFixture(t)
	for target, want := range map[string]string{
		"/demo/changes?source=chat&id=lunch/1&transaction=7&user=ada&user=zoe": `200 {"changes":[]}`,
		"/demo/changes?source=chat&id=lunch/1&user=ada":                        `400 {"detail":"an event is named by its source, id and transaction"}`,
		"/demo/changes?source=chat&transaction=7":                              `400 {"detail":"an event is named by its source, id and transaction"}`,
	} {
		a := ask(t, f, http.MethodGet, target, "")
		if got := strings.TrimSpace(http.StatusText(a.Code) + " " + a.Body.String()); got != strings.NewReplacer("200", "OK", "400", "Bad Request").Replace(want) {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}
