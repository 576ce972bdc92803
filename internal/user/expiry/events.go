package expiry

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/metric"
)

// expiries returns the events that expire conversations. Users with the same conversation,
// last message and hour share an event.
func expiries(found []stale) []events.Event {
	var order []stale // without users
	users := map[stale][]string{}
	for _, s := range found {
		user := s.User
		s.User = ""
		if users[s] == nil {
			order = append(order, s)
		}
		users[s] = append(users[s], user)
	}
	evs := make([]events.Event, len(order))
	for i, s := range order {
		evs[i] = events.Event{
			ID: eventID(s.Conversation, users[s], s.Hour, s.UpTo), Source: Source, Type: events.ConversationExpired,
			Data: events.Data{ConversationID: s.Conversation, UserIDs: users[s], UpToSeq: s.UpTo},
		}
	}
	return evs
}

// eventID derives the id of an event from its content. If a sweep finds the same conversations
// again before the event is folded, it appends the event again, with the same id, and the fold
// ignores the duplicate. numbers must include the hour of the last delivery or mark: if a user
// marks the conversation unread after it has expired, the next expiry needs another id.
func eventID(conversation string, users []string, numbers ...int64) string {
	var b []byte
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // only the bits matter
	}
	for _, id := range slices.Concat([]string{conversation}, users) {
		b = append(b, id...)
		b = append(b, 0) // ids do not contain a zero byte
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Metrics are the metrics of a Sweeper.
type Metrics struct {
	conversations prometheus.Counter
	levels        prometheus.Counter
	failed        prometheus.Counter
	sweepSeconds  prometheus.Histogram
	lastSweep     prometheus.Gauge
}

// NewMetrics returns metrics registered with r, or unregistered metrics if r is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	return &Metrics{
		conversations: metric.Counter(r, "badged_expiry_conversations_total", "Stale conversations of users that were marked as read."),
		levels:        metric.Counter(r, "badged_expiry_levels_total", "Levels of conversations with an end time that were ended."),
		failed:        metric.Counter(r, "badged_expiry_errors_total", "Failed sweeps, and failed attempts to become the process that sweeps. badged tries again."),
		sweepSeconds:  metric.Histogram(r, "badged_expiry_sweep_seconds", "Duration of one sweep in seconds, including pauses.", prometheus.ExponentialBuckets(0.005, 4, 12)),
		lastSweep:     metric.Gauge(r, "badged_expiry_last_sweep_timestamp_seconds", "Start of the last complete sweep of this process, in seconds since 1970; 0 if another process sweeps."),
	}
}
