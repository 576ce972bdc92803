package cli

import (
	"encoding/json"
	"testing"

	"github.com/badged/badged/events"
)

// A line is JSON in UTF-8, whatever is in the log.
func TestLogLines(t *testing.T) {
	for payload, want := range map[string]string{
		`{"a":1}`:          `"event":{"a":1}`,
		"{\"a\":\"\xff\"}": `"payload_base64":"eyJhIjoi/yJ9"`,
		`{`:                `"payload_base64":"ew=="`,
	} {
		line, err := json.Marshal(newLogLine(3, &events.Record{Place: events.Place{Position: events.Position{TransactionID: 1, Offset: 2}, Index: 4}, Payload: []byte(payload)}))
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"partition":3,"position":"1/2/4","appended_at":"0001-01-01T00:00:00Z",` + want + `}`; string(line) != want {
			t.Errorf("%q: %s, want %s", payload, line, want)
		}
	}
}
