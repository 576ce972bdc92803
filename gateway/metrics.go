package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/metric"
)

// Metrics are the metrics of a gateway.
type Metrics struct {
	connections, streams     prometheus.Gauge
	refused                  prometheus.Counter
	frames                   *prometheus.CounterVec
	bytes                    prometheus.Counter
	commands                 *prometheus.CounterVec
	limited                  prometheus.Counter
	closes                   *prometheus.CounterVec
	repairs, gaps, compared  prometheus.Counter
	reconcileErrors          prometheus.Counter
	rooms                    prometheus.Gauge
	roomUpdates, roomMissed  prometheus.Counter
	snapshots, changes, rest prometheus.Counter

	stale                                  prometheus.Histogram
	aheadHello, aheadUpdate, aheadCompared prometheus.Counter
}

// NewMetrics returns the metrics of a gateway. It registers them with `r`, unless `r` is nil. It
// panics if such metrics are registered with `r` already.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		connections:     metric.Gauge(r, "badged_gateway_connections", "Open client connections."),
		streams:         metric.Gauge(r, "badged_gateway_event_streams", "Open client connections over server-sent events."),
		refused:         metric.Counter(r, "badged_gateway_connections_refused_total", "Requests that could not be upgraded to a WebSocket, for example because their origin is not allowed."),
		frames:          metric.CounterVec(r, "badged_gateway_frames_sent_total", "Frames sent to clients, by type.", "type"),
		bytes:           metric.Counter(r, "badged_gateway_frame_bytes_sent_total", "Bytes of frames sent to clients."),
		commands:        metric.CounterVec(r, "badged_gateway_commands_total", "Commands of clients, by type and result.", "type", "result"),
		limited:         metric.Counter(r, "badged_gateway_commands_limited_total", "Commands of clients rejected by the rate limit."),
		closes:          metric.CounterVec(r, "badged_gateway_closes_total", "Connections that the server closed or refused, by close code. For server-sent events, the label is the close code that corresponds to the HTTP status.", "code"),
		repairs:         metric.Counter(r, "badged_gateway_reconciliation_repairs_total", "Clients that had missed an update and were corrected from the tables."),
		compared:        metric.Counter(r, "badged_gateway_reconciled_users_total", "Connected users whose clients were compared with the tables. Each user is compared at least once per --reconcile-interval, and once more after a failure of Redis."),
		gaps:            metric.Counter(r, "badged_gateway_bus_gaps_total", "Outages of the bus. After each, every client was compared with the tables."),
		reconcileErrors: metric.Counter(r, "badged_gateway_reconciliation_errors_total", "Comparisons with the tables that failed."),
		rooms:           metric.Gauge(r, "badged_gateway_rooms", "Rooms with connected members. A room counts once for each partition that has connected members of it."),
		roomUpdates:     metric.Counter(r, "badged_gateway_room_updates_total", "Updates of rooms that the gateway received from the bus."),
		roomMissed:      metric.Counter(r, "badged_gateway_room_updates_missed_total", "Connected members whose state was read from the tables because they had missed an update of a room, or were far behind in the room."),
		stale: metric.Histogram(r, "badged_gateway_staleness_seconds", "Seconds from the append of a change to the frame that contains it, by the clock of the database.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}),
	}
	ahead := metric.CounterVec(r, "badged_gateway_clients_ahead_total", "Clients that got a snapshot because their state was newer than the tables, by how the gateway found this.", "found")
	m.aheadHello, m.aheadUpdate, m.aheadCompared = ahead.WithLabelValues("hello"), ahead.WithLabelValues("update"), ahead.WithLabelValues("reconciliation")
	m.snapshots, m.changes, m.rest = m.frames.WithLabelValues("snapshot"), m.frames.WithLabelValues("changes"), m.frames.WithLabelValues("other")
	for _, t := range []string{protocol.FrameRead, protocol.FrameReadAll, protocol.FrameMarkUnread} {
		m.commands.WithLabelValues(t, "ok")
		m.commands.WithLabelValues(t, "error")
	}
	return m
}

func (m *Metrics) sent(frame any, size int) {
	switch frame.(type) {
	case protocol.SnapshotFrame:
		m.snapshots.Inc()
	case protocol.StateFrame, protocol.ResumedFrame:
		m.changes.Inc()
	default:
		m.rest.Inc()
	}
	m.bytes.Add(float64(size))
}

func (m *Metrics) closed(code int) { m.closes.WithLabelValues(strconv.Itoa(code)).Inc() }

func (m *Metrics) command(t string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.commands.WithLabelValues(t, result).Inc()
}

// observeStale records the age of the changes in a frame that a client has just been sent.
// since is the append time of the oldest change in the frame. If reconciliation has found the
// change, its append time is unknown, and since is the last time at which the client was known
// to be up to date.
func (g *Gateway) observeStale(since view.DBTime) {
	if since == 0 {
		return
	}
	g.metrics.stale.Observe(max(0, float64(view.DBTimeOf(g.clock.Now())-since)/1e6))
}
