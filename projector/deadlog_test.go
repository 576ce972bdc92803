package projector

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/store"
)

// A batch with events that cannot be folded is logged.
func TestDeadLettersAreLogged(t *testing.T) {
	d := newDatabase(t)
	var out bytes.Buffer
	d.projector = d.newProjector(t, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
	d.insertPayload(t, `[{"id":7},42]`)
	d.fold(t)
	place := d.lines(t, `SELECT transaction_id || '/' || "offset" FROM badged.dead_letters WHERE index = 0`)[0]
	for _, want := range []string{"level=WARN", "badged deadletters list", "events=2", "first.partition=0", "first.position=" + place + " ", `first.reason="invalid event: id: must be a string; `} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, out.String())
		}
	}
}

// There is at most one line a minute, and the lines count every dead letter.
func TestDeadLettersAreLoggedOnceAMinute(t *testing.T) {
	var out bytes.Buffer
	l := &deadLog{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == "events" || len(groups) > 0 && a.Key == "position" {
			return a
		}
		return slog.Attr{}
	}}))}
	dead := func(offset int64, n int) []store.DeadLetter {
		letters := make([]store.DeadLetter, n)
		letters[0].Record.Place = events.Place{Position: events.Position{TransactionID: 1, Offset: offset}}
		return letters
	}
	start := time.Unix(1_000_000, 0)
	for _, step := range []struct {
		after time.Duration
		dead  []store.DeadLetter
		want  string
	}{
		{0, nil, ""},
		{0, dead(1, 2), "events=2 first.position=1/1\n"},
		{time.Second, dead(2, 3), ""},
		{2 * time.Second, dead(3, 4), ""},
		{59 * time.Second, nil, ""},
		{time.Minute, nil, "events=7 first.position=1/2\n"},
		{5 * time.Minute, nil, ""},
		{6 * time.Minute, dead(4, 1), "events=1 first.position=1/4\n"},
	} {
		out.Reset()
		l.add(t.Context(), 0, step.dead, start.Add(step.after))
		l.flush(t.Context(), start.Add(step.after))
		if out.String() != step.want {
			t.Errorf("after %v: %q, want %q", step.after, out.String(), step.want)
		}
	}
}
