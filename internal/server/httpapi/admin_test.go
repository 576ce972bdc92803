package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/pubsub"
)

// explainer is an httpapi.Explainer that records its calls.
type explainer struct {
	user string
	replay.Question
	err error
}

func (e *explainer) Explain(_ context.Context, userID string, q replay.Question) (replay.Explanation, error) {
	e.user, e.Question = userID, q
	return replay.Explanation{
		UserID: userID, Version: 3, Numbers: pubsub.Numbers{Total: 3}, Categories: map[string]pubsub.Numbers{},
		Conversations: []replay.ExplainedConversation{}, Uncounted: []replay.UncountedEvent{}, UncountedKinds: []replay.UncountedKind{}, Agrees: true, Differences: []replay.Difference{},
	}, e.err
}

func newAdminAPI(t *testing.T, e httpapi.Explainer) *httpapi.API {
	t.Helper()
	var o httpapi.Operations
	var w httpapi.Webhooks
	if e != nil {
		o, w = &fakeOperations{}, &webhooks{}
	}
	return build(t, httpapi.Config{Devices: &fakeDevices{}, Disconnects: &fakeDisconnects{}, Explainer: e, Operations: o, Webhooks: w})
}

// explain requests an explanation with a key.
func explain(t *testing.T, api http.Handler, key, target string) answer {
	t.Helper()
	return ask(t, api, key, http.MethodGet, "/admin/v1/users/"+target, "", "")
}

func TestExplain(t *testing.T) {
	e := &explainer{}
	api := newAdminAPI(t, e)
	a := explain(t, api, adminKey, "ada/explain")
	if got := mustDecode[replay.Explanation](t, a); got.UserID != "ada" || got.Total != 3 || !e.At.IsZero() {
		t.Errorf("the answer is %s, as of %s", a.body, e.At)
	}
	for target, want := range map[string]time.Time{
		"a%2Fb%22/explain?at=2026-01-31T23:59:59Z":               time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC),
		"a%2Fb%22/explain?at=2026-01-31T23:59:59.123456%2B02:00": time.Date(2026, 1, 31, 21, 59, 59, 123456000, time.UTC),
	} {
		if a := explain(t, api, adminKey, target); a.status != http.StatusOK || e.user != `a/b"` || !e.At.Equal(want) {
			t.Errorf("%s asks for %q as of %s, answers %d %s", target, e.user, e.At, a.status, a.body)
		}
	}
}

func TestExplainParameters(t *testing.T) {
	e := &explainer{}
	api := newAdminAPI(t, e)
	for target, want := range map[string]replay.Question{
		"ada/explain?history=true":                                 {History: true},
		"ada/explain?conversation=%20tea%20":                       {Conversation: " tea "},
		"ada/explain?delivered=50&before=752/3&conversation=lunch": {Delivered: 50, Before: events.Place{Position: events.Position{TransactionID: 752, Offset: 3}}, Conversation: "lunch"},
	} {
		if a := explain(t, api, adminKey, target); a.status != http.StatusOK || e.Question != want {
			t.Errorf("%s asks for %+v, answers %d %s", target, e.Question, a.status, a.body)
		}
	}
	if a := explain(t, api, adminKey, "%20ada%20/explain"); a.status != http.StatusOK || e.user != " ada " {
		t.Errorf("spaces around an id are not kept: %q is explained, %d", e.user, a.status)
	}
}

// A publisher's key is valid, and does not let its address guess those of admins.
func TestAPublisherMayNotGuessKeysOfAdmins(t *testing.T) {
	api := newAdminAPI(t, &explainer{})
	for range 1000 { // the allowance refills slower than that
		if explain(t, api, publisherKey, "ada/explain").status == http.StatusTooManyRequests {
			break
		}
		if a := explain(t, api, "a guess", "ada/explain"); a.status == http.StatusUnauthorized && a.story(t) != "401 the key is not one of an admin" {
			t.Fatalf("a guess is answered with %s", a.body)
		}
	}
	if got := explain(t, api, adminKey, "ada/explain").status; got != http.StatusTooManyRequests {
		t.Errorf("wrong keys are not limited beside a publisher's: the next is answered with %d", got)
	}
}

func TestExplainRefuses(t *testing.T) {
	e := &explainer{}
	api := newAdminAPI(t, e)
	for target, want := range map[string]string{
		"ada/explain?at=yesterday":            "400 at must be a time such as 2026-01-31T23:59:59Z",
		"ada/explain?at=0001-01-01T00:00:00Z": "400 at must be a time such as 2026-01-31T23:59:59Z",
		"ada/explain?at=2026-01-31":           "400 at must be a time such as 2026-01-31T23:59:59Z",
		"ada/explain?delivered=1001":          "400 delivered must be a number from 0 to 1000",
		"ada/explain?delivered=all":           "400 delivered must be a number from 0 to 1000",
		"ada/explain?before=1/1":              "400 before needs delivered",
		"ada/explain?before=1/1&delivered=0":  "400 before needs delivered",
		"ada/explain?history=please":          "400 history must be true or false",
		"ada/explain?before=yesterday":        "400 before must be a position of the log such as 1234/56",
		"ada/explain?conversation=":           "400 conversation must be given once, with a value",
		"ada/explain?at=":                     "400 at must be given once, with a value",
		"ada/explain?delivered=1&delivered=2": "400 delivered must be given once, with a value",
		"ada/explain?conversation=%00":        "400 conversation must not hold control characters",
		"a%00a/explain":                       "400 user id must not hold control characters",
		strings.Repeat("a", 129) + "/explain": "400 user id must have at most 128 bytes, has 129",
		"ada/explanation":                     "404 /admin/v1/users/ada/explanation is not a route of this API",
	} {
		if got := explain(t, api, adminKey, target).story(t); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	if e.user != "" {
		t.Error("a refused request was explained")
	}
	e.err = fmt.Errorf("explain: %w", &replay.ArchivedError{Until: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)})
	if got, want := explain(t, api, adminKey, "ada/explain?at=2026-01-01T00:00:00Z").story(t), "400 events appended until 2026-01-31T00:00:00Z are archived: give a later time, or ask `badged user explain` with the archive"; got != want {
		t.Errorf("an archived time: %s", got)
	}
	e.err = errors.New("password=hunter2")
	if got, want := explain(t, api, adminKey, "ada/explain").story(t), "500 internal error; the server has logged it"; got != want {
		t.Errorf("of an error: %s", got)
	}
	if got := explain(t, newAdminAPI(t, nil), adminKey, "ada/explain").story(t); !strings.HasPrefix(got, "404 ") {
		t.Errorf("without an explainer: %s", got)
	}
}
