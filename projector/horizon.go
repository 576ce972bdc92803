package projector

import (
	"context"
	"time"

	"github.com/badged/badged/projector/lag"
)

// oldHorizon is the age from which a horizon is logged, once a minute.
const oldHorizon = 5 * time.Second

// horizonWatch measures the horizon and remembers it between measurements.
type horizonWatch struct {
	id    uint32
	since time.Time // when the id was first seen
	warn  time.Time // not before
}

// look updates the metric and logs an old horizon. If Postgres does not tell
// its age, look uses the time since it was first seen.
func (w *horizonWatch) look(ctx context.Context, p *Projector) {
	h, ok, err := lag.OldestWriter(ctx, p.cfg.Pool)
	if err != nil {
		if ctx.Err() == nil {
			p.log.WarnContext(ctx, "cannot measure the horizon", "error", err)
		}
		return
	}
	now := time.Now()
	if !ok {
		h.TransactionID = 0
	}
	if h.TransactionID != w.id {
		*w = horizonWatch{id: h.TransactionID, since: now}
	}
	if !ok {
		p.metrics.horizonSeconds.Set(0)
		return
	}
	age := max(h.Age, now.Sub(w.since))
	p.metrics.horizonSeconds.Set(age.Seconds())
	if age > oldHorizon && now.After(w.warn) {
		w.warn = now.Add(time.Minute)
		p.log.WarnContext(ctx, "an open transaction that has written blocks the folding of newer events; end it",
			"age", age.Round(time.Millisecond), "pid", h.PID, "prepared", h.Prepared, "user", h.User, "database", h.Database,
			"application", h.Application, "state", h.State)
	}
}
