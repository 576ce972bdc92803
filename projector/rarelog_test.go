package projector

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
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
	l := newDeadLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == "events" || len(groups) > 0 && a.Key == "position" {
			return a
		}
		return slog.Attr{}
	}})))
	start := time.Unix(1_000_000, 0)
	for _, step := range []struct {
		after time.Duration
		dead  int
		first string
		want  string
	}{
		{0, 0, "", ""},
		{0, 2, "1/1", "events=2 first.position=1/1\n"},
		{time.Second, 3, "1/2", ""},
		{2 * time.Second, 4, "1/3", ""},
		{59 * time.Second, 0, "", ""},
		{time.Minute, 0, "", "events=7 first.position=1/2\n"},
		{5 * time.Minute, 0, "", ""},
		{6 * time.Minute, 1, "1/4", "events=1 first.position=1/4\n"},
	} {
		out.Reset()
		l.add(step.dead, slog.GroupAttrs("first", slog.String("position", step.first)), start.Add(step.after))
		l.flush(start.Add(step.after))
		if out.String() != step.want {
			t.Errorf("after %v: %q, want %q", step.after, out.String(), step.want)
		}
	}
}

// A message whose seq is in another unit than the last is logged and counted, and so is a
// read up to there. Those of apps reach no further than the last message.
func TestSeqsFarAheadAreLogged(t *testing.T) {
	d := newDatabase(t)
	var out bytes.Buffer
	d.projector = d.newProjector(t, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
	ann := foldtest.User(0, 0)
	d.append(t, foldtest.Deliver("quiet", 1, ann), foldtest.Deliver("quiet", 999, ann),
		foldtest.Event("app", events.ConversationRead, "quiet", foldtest.ByApp(2_000_000), ann))
	d.fold(t)
	if out.Len() > 0 {
		t.Errorf("logged %s", out.String())
	}
	d.append(t, foldtest.Deliver("c", 1_700_000_000_000, ann), foldtest.Deliver("c", 1_700_000_000_000_000, ann),
		foldtest.Event("read", events.ConversationRead, "quiet", foldtest.UpTo(1e15), ann))
	d.fold(t)
	for _, want := range []string{"level=WARN", "conversation.reset or room.reset", "events=2", "first.partition=0", "first.conversation_id=c", "first.last_seq=1700000000000 ", "first.seq=1700000000000000"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, out.String())
		}
	}
	if n := testutil.ToFloat64(d.projector.metrics.leaps); n != 2 {
		t.Errorf("%v events are counted, want 2", n)
	}
}
