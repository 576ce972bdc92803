package projector

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/badged/badged/projector/internal/store"
)

// deadLogInterval is the least time between two lines about new dead letters: a
// faulty publisher can make thousands a second.
const deadLogInterval = time.Minute

// deadLog logs that events became dead letters. It is safe for concurrent use.
type deadLog struct {
	log *slog.Logger

	mu     sync.Mutex
	logged time.Time
	// events have become dead letters since then; first is the first of them.
	events int
	first  slog.Attr
}

// add logs new dead letters of a partition, unless the last line is recent: then
// the next line counts them too.
func (l *deadLog) add(ctx context.Context, partition int, dead []store.DeadLetter, now time.Time) {
	if len(dead) == 0 {
		return
	}
	l.mu.Lock()
	if l.events == 0 {
		l.first = slog.GroupAttrs("first", slog.Int("partition", partition), slog.String("position", dead[0].Record.String()), slog.String("reason", dead[0].Reason))
	}
	l.events += len(dead)
	l.mu.Unlock()
	l.flush(ctx, now)
}

// flush logs the dead letters that no line has counted, unless the last line is
// recent.
func (l *deadLog) flush(ctx context.Context, now time.Time) {
	l.mu.Lock()
	events, first := l.events, l.first
	due := events > 0 && now.Sub(l.logged) >= deadLogInterval
	if due {
		l.logged, l.events = now, 0
	}
	l.mu.Unlock()
	if due {
		l.log.LogAttrs(ctx, slog.LevelWarn, "events in the log cannot be folded and became dead letters; list them with `badged deadletters list`, then retry or discard them",
			slog.Int("events", events), first)
	}
}
