package projector

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
)

// expiries returns the events that expire conversations: one for all users who
// were delivered the same in the same hour.
func expiries(found []stale) []events.Event {
	type group struct {
		hour         int64
		conversation string
		upTo         int64
	}
	var order []group
	users := map[group][]string{}
	for _, s := range found {
		g := group{s.hour, s.conversation, s.upTo}
		if users[g] == nil {
			order = append(order, g)
		}
		users[g] = append(users[g], s.user)
	}
	evs := make([]events.Event, len(order))
	for i, g := range order {
		evs[i] = events.Event{
			ID: expiryID(g.hour, g.conversation, g.upTo, users[g]), Source: ExpirySource, Type: events.ConversationExpired,
			Data: events.Data{ConversationID: g.conversation, UserIDs: users[g], UpToSeq: g.upTo},
		}
	}
	return evs
}

// expiryID names an event by all that it says, so that a sweep that finds the
// same again, before it was folded, says the same again: which counts once. The
// hour is what a user who marks the conversation unread later makes another.
func expiryID(hour int64, conversation string, upTo int64, users []string) string {
	var b []byte
	b = binary.BigEndian.AppendUint64(b, uint64(hour)) //nolint:gosec // bits are all that matters
	b = binary.BigEndian.AppendUint64(b, uint64(upTo)) //nolint:gosec // as above
	for _, id := range slices.Concat([]string{conversation}, users) {
		b = append(b, id...)
		b = append(b, 0) // which no id holds
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// ExpiryMetrics is what an expiry sweep counts.
type ExpiryMetrics struct {
	conversations prometheus.Counter
	failed        prometheus.Counter
	sweepSeconds  prometheus.Histogram
	lastSweep     prometheus.Gauge
}

// NewExpiryMetrics returns metrics that are registered with r, or with nothing
// where it is nil.
func NewExpiryMetrics(r prometheus.Registerer) *ExpiryMetrics {
	m := &ExpiryMetrics{
		conversations: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "badged", Subsystem: "expiry", Name: "conversations_total",
			Help: "Conversations of users that were found stale and expired.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "badged", Subsystem: "expiry", Name: "errors_total",
			Help: "Sweeps, and attempts to take part in sweeping, that failed and are tried again.",
		}),
		sweepSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "badged", Subsystem: "expiry", Name: "sweep_seconds",
			Help: "Seconds that one sweep took, pauses included.", Buckets: prometheus.ExponentialBuckets(0.005, 4, 12),
		}),
		lastSweep: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "expiry", Name: "last_sweep_timestamp_seconds",
			Help: "When the last sweep of this process that ended began; 0 where another process sweeps.",
		}),
	}
	if r != nil {
		r.MustRegister(m.conversations, m.failed, m.sweepSeconds, m.lastSweep)
	}
	return m
}
