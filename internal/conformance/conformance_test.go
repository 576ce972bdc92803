package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
)

// TestMain runs the tests, or the client that they start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "client" {
		serveReference(strings.Join(os.Args[2:], " "))
	}
	goleak.VerifyTestMain(m)
}

// runReference runs the client with a bug against some scenarios.
func runReference(t *testing.T, bug string, only ...string) Report {
	t.Helper()
	report, err := Run(t.Context(), Config{
		Command: []string{os.Args[0], "client", bug}, Only: only, Parallel: 8, StepTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestAnotherClientPasses(t *testing.T) {
	t.Parallel()
	report := runReference(t, "")
	if want := len(Scenarios()); report.Passed != want {
		var text bytes.Buffer
		_ = report.Print(&text) // a buffer takes everything
		t.Errorf("%d of %d scenarios pass:\n%s", report.Passed, want, &text)
	}
}

// A client with a bug fails the scenario that is about it, for the right reason.
func TestBugsAreFound(t *testing.T) {
	t.Parallel()
	var tests errgroup.Group
	tests.SetLimit(6)
	for _, test := range []struct{ bug, scenario, expected, happened string }{
		{"applies older frames", "stale", `to show {"conversations":`, `"version":58`},
		{"applies older frames", "stale-resume", `to show {"conversations":`, `"version":58`},
		{"reconnects after refusals", "refused-4001", "not to reconnect after 4001", "the client connects"},
		{"reconnects after refusals", "bye-refused", "not to reconnect after 4001", "the client connects"},
		{"does not resume", "resume", "hello with epoch e1 and version 59", "epoch <nil> and version <nil>"},
		{"keeps its epoch", "new-epoch", "hello with epoch e2 and version 10", "epoch e1 and version 10"},
		{"merges snapshots", "gap", "to show", "the client shows"},
		{"ignores older snapshots", "withdrawn", `"version":40`, "nothing within"},
		{"wants every version", "lost-update", `"version":75`, "nothing within"},
		{"trusts frames of any type", "unknown", "to show", `"total":99`},
		{"counts conversations itself", "changes", `"unread_conversations":4`, `"unread_conversations":5`},
		{"reads small frames only", "large-snapshot", `"total":500`, "the client ends the connection"},
		{"does not answer pings", "ping", "the frame pong", "nothing within"},
		{"trusts silence", "silence", "to give up a connection", "nothing within"},
		{"ignores reconnect_ms", "back-off", "to reconnect after reconnect_ms", "too early"},
		{"ignores reconnect_ms", "bye", "to reconnect after reconnect_ms", "too early"},
		{"keeps its token", "token-expired", "a fresh token", "the old one"},
		{"keeps its token", "token-refresh", "auth with the token of BADGED_FRESH_TOKEN", "another token"},
		{"gives up if its token is not checked", "token-unchecked", "the frame pong", "the client ends the connection"},
		{"does not retry", "command-retried", "the command again", `{"code":"unavailable","failed":1}`},
		{"retries at once", "command-retried", "the command again after retry_ms", "too early"},
		{"makes new ids", "answer-lost", "the same id as before", "the client sends the id"},
		{"forgets commands", "answer-lost", "the command again", "nothing within"},
		{"rounds seqs", "large-seqs", "1851234567890123777", "the client sends up_to_seq"},
	} {
		cfg := Config{
			Command: []string{os.Args[0], "client", test.bug}, Only: []string{test.scenario}, StepTimeout: time.Minute,
		}
		switch test.happened {
		case "nothing within":
			cfg.StepTimeout = 5 * time.Second
		case "too early": // however slow the machine is
			cfg.pause = time.Minute
		}
		tests.Go(func() error { // most of them wait, so more run at once than parallel subtests would
			report, err := Run(t.Context(), cfg)
			if err != nil {
				return err
			}
			found := report.Scenarios[0]
			if found.Name != test.scenario || found.Result != Failed ||
				!strings.Contains(found.Expected, test.expected) || !strings.Contains(found.Happened, test.happened) {
				t.Errorf("a client that %s: %+v", test.bug, found)
			}
			return nil
		})
	}
	if err := tests.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestClientSaysWhatItDoesNotSupport(t *testing.T) {
	t.Parallel()
	report := runReference(t, "knows no hello tokens", "auth-")
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
