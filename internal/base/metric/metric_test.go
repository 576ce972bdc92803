package metric

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsAreRegistered(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	Counter(r, "a_total", "A.").Inc()
	CounterVec(r, "b_total", "B.", "x", "y").WithLabelValues("1", "2").Inc()
	CounterFunc(r, "c_total", "C.", func() float64 { return 3 })
	Gauge(r, "d", "D.").Set(4)
	GaugeVec(r, "e", "E.", "x").WithLabelValues("1").Set(5)
	GaugeFunc(r, "f", "F.", func() float64 { return 6 })
	Histogram(r, "g", "G.", []float64{1}).Observe(7)
	HistogramVec(r, "h", "H.", []float64{1}, "x").WithLabelValues("1").Observe(.5)
	if err := testutil.GatherAndCompare(r, strings.NewReader(`# HELP a_total A.
# TYPE a_total counter
a_total 1
# HELP b_total B.
# TYPE b_total counter
b_total{x="1",y="2"} 1
# HELP c_total C.
# TYPE c_total counter
c_total 3
# HELP d D.
# TYPE d gauge
d 4
# HELP e E.
# TYPE e gauge
e{x="1"} 5
# HELP f F.
# TYPE f gauge
f 6
# HELP g G.
# TYPE g histogram
g_bucket{le="1"} 0
g_bucket{le="+Inf"} 1
g_sum 7
g_count 1
# HELP h H.
# TYPE h histogram
h_bucket{x="1",le="1"} 1
h_bucket{x="1",le="+Inf"} 1
h_sum{x="1"} 0.5
h_count{x="1"} 1
`)); err != nil {
		t.Error(err)
	}
}

func TestWithoutARegistererMetricsWork(t *testing.T) {
	for range 2 { // the names need not be unique
		c := Counter(nil, "a_total", "A.")
		c.Inc()
		if n := testutil.ToFloat64(c); n != 1 {
			t.Errorf("the counter has %v", n)
		}
	}
}
