package obs

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// RegisterPool registers metrics of a Postgres pool. name is the value of the label "pool": it says
// what the pool is used for.
func RegisterPool(r prometheus.Registerer, name string, pool *pgxpool.Pool) {
	describe := func(metric, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("badged_postgres_"+metric, help, labels, prometheus.Labels{"pool": name})
	}
	r.MustRegister(&poolCollector{
		pool:        pool,
		connections: describe("connections", "Connections to Postgres, by pool and state.", "state"),
		max:         describe("connections_max", "Limit on the connections of a pool; pool_max_conns in the database URL sets it."),
		waits:       describe("connection_waits_total", "Waits for a connection because all connections of the pool were in use or not yet open."),
		waited:      describe("connection_wait_seconds_total", "Seconds spent waiting for a connection."),
	})
}

// poolCollector reads the statistics of a pool at each collection.
type poolCollector struct {
	pool                            *pgxpool.Pool
	connections, max, waits, waited *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *poolCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.connections, c.max, c.waits, c.waited} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (c *poolCollector) Collect(metrics chan<- prometheus.Metric) {
	s := c.pool.Stat()
	gauge := func(d *prometheus.Desc, value int32, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	gauge(c.connections, s.AcquiredConns(), "in_use")
	gauge(c.connections, s.IdleConns(), "idle")
	gauge(c.connections, s.ConstructingConns(), "connecting")
	gauge(c.max, s.MaxConns())
	metrics <- prometheus.MustNewConstMetric(c.waits, prometheus.CounterValue, float64(s.EmptyAcquireCount()))
	metrics <- prometheus.MustNewConstMetric(c.waited, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds())
}
