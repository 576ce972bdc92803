package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/internal/devtest/snippets"
)

// TestMain runs the tests, or acts as the client that the tests start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "client" {
		serveReference(strings.Join(os.Args[2:], " "))
	}
	goleak.VerifyTestMain(m)
}

// runReference runs the reference client, with a bug, against the scenarios in only.
func runReference(t *testing.T, transport Transport, bug string, only ...string) Report {
	t.Helper()
	report, err := Run(t.Context(), Config{
		Transport: transport,
		Command:   []string{os.Args[0], "client", bug}, Only: only, Parallel: 8, StepTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestAnotherClientPasses(t *testing.T) {
	t.Parallel()
	for _, transport := range []Transport{WebSockets, ServerSentEvents} {
		t.Run(string(transport), func(t *testing.T) {
			t.Parallel()
			report := runReference(t, transport, "")
			if want := len(Scenarios(transport)); report.Passed != want {
				var text bytes.Buffer
				_ = report.Print(&text) // a buffer takes everything
				t.Errorf("%d of %d scenarios pass:\n%s", report.Passed, want, &text)
			}
		})
	}
}

// bug is an error of a client, the scenario that finds it, and texts that the outcome must
// contain. expected is empty if the failing step depends on timing: a line or a connection may
// come first, and a new connection may be seen before the end of the old connection.
type bug struct{ bug, scenario, expected, happened string }

// A client with a bug fails the scenario for this bug, and for the right reason.
func TestBugsAreFound(t *testing.T) {
	t.Parallel()
	findBugs(t, WebSockets, []bug{
		{"applies older frames", "stale", `to show {"categories":`, `"version":58`},
		{"applies older frames", "stale-resume", `to show {"categories":`, `"version":58`},
		{"reconnects after refusals", "refused-4001", "not to reconnect after 4001", "the client connects"},
		{"reconnects after refusals", "bye-refused", "not to reconnect after 4001", "the client connects"},
		{"does not resume", "resume", "hello with epoch e1 and version 59", "epoch <nil> and version <nil>"},
		{"keeps its epoch", "new-epoch", "hello with epoch e2 and version 10", "epoch e1 and version 10"},
		{"merges snapshots", "gap", "to show", "the client shows"},
		{"ignores older snapshots", "withdrawn", `"version":40`, "nothing within"},
		{"wants every version", "lost-update", `"version":75`, "nothing within"},
		{"trusts frames of any type", "unknown", "to show", `"total":99`},
		{"ends levels itself", "levels", "to show", `"total":5`},
		{"keeps the ends of levels", "levels", "to show", `2026-03-02T09:00:00Z`},
		{"counts conversations itself", "changes", `"unread_conversations":4`, `"unread_conversations":5`},
		{"reads small frames only", "large-snapshot", `"total":500`, "the client "},
		{"does not answer pings", "ping", "the frame pong", "nothing within"},
		{"trusts silence", "silence", "to give up a connection", "nothing within"},
		{"ignores reconnect_ms", "back-off", "to reconnect after reconnect_ms", "too early"},
		{"ignores reconnect_ms", "bye", "to reconnect after reconnect_ms", "too early"},
		{"keeps its token", "token-expired", "a fresh token", "the old one"},
		{"keeps its token", "token-refresh", "auth with the token of BADGED_FRESH_TOKEN", "another token"},
		{"renews at once", "token-short", "not to renew a token again so soon", `"t":"auth"`},
		{"gives up if its token is not checked", "token-unchecked", "the frame pong", "the client "},
		{"sends any command", "command-invalid", `"code":"invalid"`, `"conversation_id":""`},
		{"sends fields of its own", "read_all", `{"t":"read_all"} with an id`, "the field sent_by too"},
		{"replaces categories", "paths", `"acme/general":`, "the client shows"},
		{"keeps all categories", "paths", `"levels":{}`, "the client shows"},
		{"keeps empty categories", "paths", "to show", `"games/lfg/eu":`},
		{"merges levels", "paths", `"levels":{"acme/general":"all","games":"none"}`, `"acme":"mentions"`},
		{"forgets categories", "read_all-category", `"category":"acme"`, "the client sends category"},
		{"sends any command", "category-invalid", `"code":"invalid"`, "acme//general"},
		{"stores no levels", "stored-paths", "to show", "the client shows"},
		{"does not retry", "command-retried", "the command again", `{"code":"unavailable","failed":1}`},
		{"retries at once", "command-retried", "the command again after retry_ms", "too early"},
		{"makes new ids", "answer-lost", "the same id as before", "the client sends the id"},
		{"forgets commands", "answer-lost", "the command again", "nothing within"},
		{"rounds seqs", "large-seqs", "1851234567890123777", "the client sends up_to_seq"},
		{"stores no state", "restart", "hello with epoch e1 and version 59", "epoch <nil> and version <nil>"},
		{"stores its epoch once", "restart-epoch", "hello with epoch e2", "epoch e1"},
		{"stores no commands", "restart-unsent", `"t":"read"`, "nothing within"},
		{"makes new ids when it starts", "restart-unanswered", "the same id as before", "the client sends the id"},
		{"keeps stored commands", "restart-unanswered", "the frame pong", `"t":"read"`},
		{"stores when it ends", "killed", "the command again", "nothing within"},
		{"trusts its files", "restart-truncated", "", "exit status 2"},
		{"stores for any user", "restart-user", "", "the client s"},
	})
}

// Clients of server-sent events fail for their bugs too.
func TestBugsAreFoundOverStreams(t *testing.T) {
	t.Parallel()
	findBugs(t, ServerSentEvents, []bug{
		{"applies older frames", "stale", `to show {"categories":`, `"version":58`},
		{"wants every version", "lost-update", `"version":75`, "nothing within"},
		{"merges snapshots", "gap", "to show", "the client shows"},
		{"keeps its epoch", "new-epoch", "Last-Event-ID with epoch e2 and version 10", "epoch e1 and version 10"},
		{"does not resume", "resume", "Last-Event-ID with epoch e1 and version 59", "epoch <nil> and version <nil>"},
		{"trusts frames of any type", "unknown", "to show", `"total":99`},
		{"ends levels itself", "levels", "to show", `"total":5`},
		{"keeps the ends of levels", "levels", "to show", `2026-03-02T09:00:00Z`},
		{"knows one line end", "events", `"version":61`, "nothing within"},
		{"does not count comments", "comments", "to keep a stream on which comments come", "the client "}, // the client ends the connection and connects again
		{"trusts silence", "silence", "to give up a connection", "nothing within"},
		{"reconnects after refusals", "refused-4001", "not to reconnect after 4001", "the client connects"},
		{"reconnects after refusals", "bye-refused", "not to reconnect after 4001", "the client connects"},
		{"ignores reconnect_ms", "back-off", "to reconnect after reconnect_ms", "too early"},
		{"ignores reconnect_ms", "bye", "to reconnect after reconnect_ms", "too early"},
		{"ignores reconnect_ms", "status-429", "to reconnect after retry_ms", "too early"},
		{"ignores reconnect_ms", "status-503", "to reconnect after retry_ms", "too early"},
		{"keeps its token", "token-expired", "a fresh token", "the old one"},
		{"keeps its token", "status-401", "a fresh token", "the old one"},
		{"gives up after answers of proxies", "status-proxy", "GET /v1/sse", "nothing within"},
		{"sends commands without a token", "read", "a token by the way header", "the client gives a token by these ways: []"},
		{"sends any command", "command-invalid", `"code":"invalid"`, `"conversation_id":""`},
		{"sends fields of its own", "read_all", `{"t":"read_all"} with an id`, "the field sent_by too"},
		{"does not retry", "command-limited", "the command again", `{"code":"rate_limited","failed":1}`},
		{"retries at once", "command-retried", "the command again after retry_ms", "too early"},
		{"retries at once", "command-limited", "the command again after retry_ms", "too early"},
		{"ends the stream if an answer is lost", "command-lost", "the command again", "the client "},
		{"takes proxies for the server", "command-proxy", "the command again", `{"code":"invalid","failed":1}`},
		{"makes new ids", "command-lost", "the same id as before", "the client sends the id"},
		{"makes new ids", "answer-lost", "the same id as before", "the client sends the id"},
		{"forgets commands", "answer-lost", "the command again", "nothing within"},
		{"rounds seqs", "large-seqs", "1851234567890123777", "the client sends up_to_seq"},
		{"stores no state", "restart", "Last-Event-ID with epoch e1 and version 59", "epoch <nil> and version <nil>"},
		{"stores no commands", "restart-unsent", `"t":"read"`, "nothing within"},
		{"makes new ids when it starts", "restart-unanswered", "the same id as before", "the client sends the id"},
		{"keeps stored commands", "restart-unanswered", "", `"t":"read"`},
		{"stores when it ends", "killed", "the command again", "nothing within"},
		{"trusts its files", "restart-truncated", "", "exit status 2"},
		{"stores for any user", "restart-user", "", "the client s"},
	})
}

// findBugs runs a client for each bug, and fails unless the scenario fails as expected.
func findBugs(t *testing.T, transport Transport, bugs []bug) {
	t.Helper()
	var tests errgroup.Group
	tests.SetLimit(6)
	for _, test := range bugs {
		cfg := Config{
			Transport: transport,
			Command:   []string{os.Args[0], "client", test.bug}, Only: []string{test.scenario}, StepTimeout: time.Minute,
		}
		attempts := 1
		switch test.happened {
		case "nothing within":
			cfg.StepTimeout, attempts = 5*time.Second, 2 // a busy machine needs longer before
		case "too early": // long enough even on a slow machine
			cfg.pause = time.Minute
		}
		tests.Go(func() error { // most of them wait, so more run at once than parallel subtests would
			for {
				report, err := Run(t.Context(), cfg)
				if err != nil {
					return err
				}
				found := report.Scenarios[0]
				if found.Name == test.scenario && found.Result == Failed &&
					strings.Contains(found.Expected, test.expected) && strings.Contains(found.Happened, test.happened) {
					return nil
				}
				if attempts--; attempts == 0 {
					t.Errorf("a client that %s: %+v", test.bug, found)
					return nil
				}
				cfg.StepTimeout = time.Minute
			}
		})
	}
	if err := tests.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestClientSaysWhatItDoesNotSupport(t *testing.T) {
	t.Parallel()
	report := runReference(t, WebSockets, "knows no hello tokens", "auth-")
	if report.Passed != 2 || report.Unsupported != 1 {
		t.Errorf("%+v", report)
	}
	var text, asJSON bytes.Buffer
	if err := report.Print(&text); err != nil {
		t.Fatal(err)
	}
	if want := "    the client does not support tokens in hello\n2 passed, 0 failed, 1 not supported\n"; !strings.HasSuffix(text.String(), want) {
		t.Errorf("the report ends otherwise:\n%s", &text)
	}
	if err := report.JSON(&asJSON); err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(asJSON.Bytes(), &again); err != nil || again.Unsupported != 1 || again.Scenarios[2].Result != Unsupported {
		t.Errorf("%v: %s", err, &asJSON)
	}
}

// The page shows such a report.
func TestReportOfThePage(t *testing.T) {
	t.Parallel()
	report := runReference(t, WebSockets, "applies older frames", "changes", "stale")
	tokens := runReference(t, WebSockets, "knows no hello tokens", "auth-hello")
	report.Scenarios = slices.DeleteFunc(append(report.Scenarios, tokens.Scenarios...), func(o Outcome) bool {
		return !slices.Contains([]string{"changes", "stale", "auth-hello"}, o.Name)
	})
	var text strings.Builder
	if err := report.Print(&text); err != nil {
		t.Fatal(err)
	}
	snippets.ExpectShape(t, snippets.With(t, "docs/conformance.md", "older and repeated changes", "").Text, text.String())
}

func TestProgramsThatAreNoClients(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, script, happened string }{
		{"ends at once", "exit 3", "the client's program ends: exit status 3"},
		{"prints something else", "echo hello; cat", "the client prints hello: not a line of the adapter protocol"},
		{"prints another object", `echo '{"hello":1}'; cat`, "it has none of version, refused, done, failed, unsupported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			report, err := Run(t.Context(), Config{Command: []string{"sh", "-c", test.script}, Only: []string{"ping"}})
			if err != nil {
				t.Fatal(err)
			}
			if found := report.Scenarios[0]; found.Result != Failed || !strings.Contains(found.Happened, test.happened) {
				t.Errorf("%+v", found)
			}
		})
	}
	for _, cfg := range []Config{
		{},
		{Command: []string{"/nowhere/client"}},
		{Command: []string{"true"}, Only: []string{"frobnicate"}},
	} {
		if report, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("%+v runs: %+v", cfg, report)
		}
	}
}

// An interrupted run, such as with a client that hangs, reports the scenarios that have ended.
func TestInterruptedRunReportsWhatHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	second := filepath.Join(t.TempDir(), "second")
	if err := syscall.Mkfifo(second, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer cancel()
		if _, err := os.ReadFile(second); err != nil { // returns once the second client has begun
			t.Error(err)
		}
	}()
	// The first client creates a folder and exits. The second finds the folder and hangs.
	script := `if mkdir "$0.mark"; then exit 3; fi; echo > "$0"; exec sleep 1000`
	report, err := Run(ctx, Config{
		Command: []string{"sh", "-c", script, second}, Only: []string{"ping", "stale"}, Parallel: 1, StepTimeout: time.Hour,
	})
	if !errors.Is(err, context.Canceled) || report.Failed != 1 || len(report.Scenarios) != 1 {
		t.Errorf("%v: %+v", err, report)
	}
}
