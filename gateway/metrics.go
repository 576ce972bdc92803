package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/protocol"
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

// NewMetrics returns metrics, and registers them with r unless r is nil. It panics if they are
// registered with r already.
func NewMetrics(r prometheus.Registerer) *Metrics {
	auto := promauto.With(r)
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "badged", Subsystem: "gateway", Name: name, Help: help}
	}
	m := &Metrics{
		connections: auto.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "gateway", Name: "connections", Help: "Open client connections.",
		}),
		streams: auto.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "gateway", Name: "event_streams", Help: "Open client connections over server-sent events.",
		}),
		refused:         auto.NewCounter(opts("connections_refused_total", "Requests that could not be upgraded to a WebSocket, for example since their origin is not allowed.")),
		frames:          auto.NewCounterVec(opts("frames_sent_total", "Frames sent to clients, by type."), []string{"type"}),
		bytes:           auto.NewCounter(opts("frame_bytes_sent_total", "Bytes of frames sent to clients.")),
		commands:        auto.NewCounterVec(opts("commands_total", "Commands of clients, by type and result."), []string{"type", "result"}),
		limited:         auto.NewCounter(opts("commands_limited_total", "Commands of clients rejected by the rate limit.")),
		closes:          auto.NewCounterVec(opts("closes_total", "Connections that the server closed or refused, by close code. For server-sent events it is the close code with the same meaning as the status."), []string{"code"}),
		repairs:         auto.NewCounter(opts("reconciliation_repairs_total", "Clients that had missed an update and were corrected from the tables.")),
		compared:        auto.NewCounter(opts("reconciled_users_total", "Connected users whose clients were compared with the tables. Each user is compared at least once per --reconcile-interval, and once more after a failure of Redis.")),
		gaps:            auto.NewCounter(opts("bus_gaps_total", "Outages of the bus. After each, every client was compared with the tables.")),
		reconcileErrors: auto.NewCounter(opts("reconciliation_errors_total", "Comparisons with the tables that failed.")),
	}
	m.rooms = auto.NewGauge(prometheus.GaugeOpts{
		Namespace: "badged", Subsystem: "gateway", Name: "rooms", Help: "Rooms with connected members. A room counts once for each partition that has connected members of it.",
	})
	m.roomUpdates = auto.NewCounter(opts("room_updates_total", "Updates of rooms that the gateway received from the bus."))
	m.roomMissed = auto.NewCounter(opts("room_updates_missed_total", "Connected members whose state was read from the tables because they had missed an update of a room, or were far behind in it."))
	m.stale = auto.NewHistogram(prometheus.HistogramOpts{
		Namespace: "badged", Subsystem: "gateway", Name: "staleness_seconds",
		Help:    "Seconds from the append of a change to the frame that contains it, by the clock of the database.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})
	ahead := auto.NewCounterVec(opts("clients_ahead_total", "Clients that got a snapshot because their state was newer than the tables, by how the gateway found this."), []string{"found"})
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
func (g *Gateway) observeStale(since view.Moment) {
	if since == 0 {
		return
	}
	g.metrics.stale.Observe(max(0, float64(view.At(g.clock.Now())-since)/1e6))
}
