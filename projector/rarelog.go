package projector

import (
	"log/slog"
	"sync"
	"time"

	"github.com/badged/badged/internal/fold/store"
)

// rareLogInterval is the minimum time between two lines of a rareLog. A faulty publisher can
// cause thousands of events per second that are logged this way.
const rareLogInterval = time.Minute

// rareLog logs how many events of one kind there were, with a fixed message, at most once per
// interval. It is safe for concurrent use.
type rareLog struct {
	log     *slog.Logger
	message string

	mu     sync.Mutex
	logged time.Time
	// events counts the events since the last line, and first describes the first of these
	// events.
	events int
	first  slog.Attr
}

// newDeadLog returns the log of new dead letters.
func newDeadLog(log *slog.Logger) *rareLog {
	return &rareLog{log: log, message: "events in the log cannot be folded and became dead letters; list them with `badged deadletters list`, then retry or discard them"}
}

// newLeapLog returns the log of events with seqs far ahead (see badge.Leap).
func newLeapLog(log *slog.Logger) *rareLog {
	return &rareLog{log: log, message: "events have a seq that is at least 1,000 times the last one of their conversation, as if its unit had changed; " +
		"a read up to such a seq hides later messages with lower seqs: if the seq is wrong, publish conversation.reset or room.reset"}
}

// add counts new events; first describes one of them. It logs the events at once, unless it has
// logged a line less than rareLogInterval ago.
func (l *rareLog) add(events int, first slog.Attr, now time.Time) {
	if events == 0 {
		return
	}
	l.mu.Lock()
	if l.events == 0 {
		l.first = first
	}
	l.events += events
	l.mu.Unlock()
	l.flush(now)
}

// flush logs the number of events since the last line. It does nothing if there were no events, or
// if a line was logged less than rareLogInterval ago.
func (l *rareLog) flush(now time.Time) {
	l.mu.Lock()
	events, first := l.events, l.first
	due := events > 0 && now.Sub(l.logged) >= rareLogInterval
	if due {
		l.logged, l.events = now, 0
	}
	l.mu.Unlock()
	if due {
		l.log.Warn(l.message, slog.Int("events", events), first)
	}
}

func (p *partition) logDead(dead []store.DeadLetter) {
	if len(dead) > 0 {
		p.projector.deadLog.add(len(dead), slog.GroupAttrs("first", slog.Int("partition", p.id),
			slog.String("position", dead[0].Record.String()), slog.String("reason", dead[0].Reason)), time.Now())
	}
}

func (p *partition) logLeaps(r *store.Result) {
	first := r.FirstLeap
	p.projector.leapLog.add(r.Leaps, slog.GroupAttrs("first", slog.Int("partition", p.id),
		slog.String("conversation_id", first.ConversationID), slog.Int64("last_seq", first.Last), slog.Int64("seq", first.Seq)), time.Now())
}
