package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is what a gateway counts.
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
	snapshots, changes, rest prometheus.Counter
}

// NewMetrics returns metrics that are registered with r, or with nothing where
// it is nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "badged", Subsystem: "gateway", Name: name, Help: help}
	}
	m := &Metrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "gateway", Name: "connections", Help: "Open client connections.",
		}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "gateway", Name: "event_streams", Help: "Open client connections that are server-sent events.",
		}),
		refused:         prometheus.NewCounter(opts("connections_refused_total", "Requests that could not be upgraded, such as those of a foreign origin.")),
		frames:          prometheus.NewCounterVec(opts("frames_sent_total", "Frames sent to clients, by type."), []string{"type"}),
		bytes:           prometheus.NewCounter(opts("frame_bytes_sent_total", "Bytes of frames sent to clients.")),
		commands:        prometheus.NewCounterVec(opts("commands_total", "Commands of clients, by type and result."), []string{"type", "result"}),
		limited:         prometheus.NewCounter(opts("commands_limited_total", "Commands of clients that were told to come later, since there were too many.")),
		closes:          prometheus.NewCounterVec(opts("closes_total", "Connections closed or refused by the server, by close code, for server-sent events by that which says the same as their status."), []string{"code"}),
		repairs:         prometheus.NewCounter(opts("reconciliation_repairs_total", "Clients that had missed an update and were brought up to date from the tables.")),
		compared:        prometheus.NewCounter(opts("reconciled_users_total", "Connected users whose clients were compared with the tables; each comes once in --reconcile-interval.")),
		gaps:            prometheus.NewCounter(opts("bus_gaps_total", "Times the bus was away, after which every client was compared with the tables.")),
		reconcileErrors: prometheus.NewCounter(opts("reconciliation_errors_total", "Comparisons with the tables that failed.")),
	}
	m.snapshots, m.changes, m.rest = m.frames.WithLabelValues("snapshot"), m.frames.WithLabelValues("changes"), m.frames.WithLabelValues("other")
	for _, t := range []string{frameRead, frameReadAll, frameMarkUnread} {
		m.commands.WithLabelValues(t, "ok")
		m.commands.WithLabelValues(t, "error")
	}
	if r != nil {
		r.MustRegister(m.connections, m.streams, m.refused, m.frames, m.bytes, m.commands, m.limited, m.closes, m.repairs, m.gaps, m.compared, m.reconcileErrors)
	}
	return m
}

func (m *Metrics) sent(frame any, size int) {
	switch frame.(type) {
	case snapshotFrame:
		m.snapshots.Inc()
	case stateFrame, resumedFrame:
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
