package app

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/bridge/relay"
	"github.com/badged/badged/internal/bridge/tail"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/privateredis"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/notify/seal"
)

// documented is a metric of docs/metrics.md or of a server.
type documented struct {
	Kind   string // counter, gauge or histogram
	Labels string // sorted, with commas between them
	Help   string
	unit   string
	// values are the possible values of labels, where all are listed.
	values map[string][]string
}

// metricRow is a row of a table in docs/metrics.md.
var metricRow = regexp.MustCompile("(?m)^\\| `(badged_\\w+)` \\| (\\w+) \\| ([^|]*) \\| ([^|]*) \\| (.*) \\|$")

func documentedMetrics(t *testing.T) map[string]documented {
	t.Helper()
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]documented{}
	for _, row := range metricRow.FindAllStringSubmatch(string(page), -1) {
		if _, twice := all[row[1]]; twice {
			t.Errorf("docs/metrics.md: %s is there twice", row[1])
		}
		m := documented{Kind: row[2], unit: row[3], Help: strings.ReplaceAll(row[5], "`", ""), values: map[string][]string{}}
		var labels []string
		for label := range strings.SplitSeq(row[4], "; ") {
			name, values, _ := strings.Cut(strings.ReplaceAll(label, "`", ""), ": ")
			if name == "" {
				continue
			}
			labels = append(labels, name)
			if values != "" {
				m.values[name] = strings.Split(values, ", ")
			}
		}
		slices.Sort(labels)
		m.Labels = strings.Join(labels, ",")
		all[row[1]] = m
	}
	if lines := strings.Count(string(page), "\n| `badged_"); lines != len(all) {
		t.Fatalf("docs/metrics.md: %d of %d rows are not | `name` | kind | unit | labels | meaning |", lines-len(all), lines)
	}
	return all
}

// described matches prometheus.Desc, whose fields are only in its text.
var (
	described = regexp.MustCompile(`^Desc\{fqName: "(badged_\w+)", help: "(.*?)"(?:, unit: "[^"]*")?, constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	labelName = regexp.MustCompile(`(\w+)(="[^"]*")?,?`)
)

// registeredMetrics returns badged's own metrics in a registry, including
// those without a value yet.
func registeredMetrics(t *testing.T, r *prometheus.Registry) map[string]documented {
	t.Helper()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		r.Describe(descriptions)
	}()
	all := map[string]documented{}
	for d := range descriptions {
		parts := described.FindStringSubmatch(d.String())
		if parts == nil {
			continue
		}
		var labels []string
		for _, l := range labelName.FindAllStringSubmatch(parts[3]+","+parts[4], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		m := documented{Kind: "gauge", Help: parts[2], Labels: strings.Join(labels, ",")}
		if strings.HasSuffix(parts[1], "_total") {
			m.Kind = "counter"
		}
		all[parts[1]] = m
	}
	return all
}

// docs/metrics.md lists exactly the metrics that a server with all roles and
// options registers.
func TestMetricsAreDocumented(t *testing.T) {
	keySet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"keys":[]}`))
	}))
	defer keySet.Close()
	redis, err := privateredis.Start(t.Context(), privateredis.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Stop()
	cfg := settings(pgtest.NewDB(t, migrated()))
	cfg.RedisURL, cfg.JWKSURL, cfg.Expire = redis.URL(), keySet.URL, []string{"*=1h"}
	cfg.From = []string{redis.URL() + "?stream=chat"}
	s := run(t, open(t, cfg))
	s.get(t, "/v1/users/ada/badge") // adds a value to the histogram by route
	callWebhook(t, s)               // adds one to that by webhook
	relay.NewMetrics(s.registry)    // of other commands
	tail.NewMetrics(s.registry)
	s.databases[0].registry = prometheus.WrapRegistererWith(prometheus.Labels{"shard": "a"}, s.registry)
	s.registerShards() // of several databases

	docs, registered := documentedMetrics(t), registeredMetrics(t, s.registry)
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		m, ok := registered[f.GetName()]
		if !ok {
			continue // of the Go runtime
		}
		kind := strings.ToLower(f.GetType().String())
		if (kind == "counter") != (m.Kind == "counter") {
			t.Errorf("%s is a %s: counters, and nothing else, are called …_total", f.GetName(), kind)
		}
		m.Kind = kind
		registered[f.GetName()] = m
		for _, metric := range f.GetMetric() {
			for _, l := range metric.GetLabel() {
				if known := docs[f.GetName()].values[l.GetName()]; known != nil && !slices.Contains(known, l.GetValue()) {
					t.Errorf("docs/metrics.md: %s has the %s %s too", f.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
	for name, m := range docs {
		// Text after the help explains it.
		if r := registered[name]; r.Help != "" && strings.HasPrefix(m.Help, r.Help) {
			m.Help = r.Help
		}
		checkUnit(t, name, m)
		m.unit, m.values = "", nil
		docs[name] = m
	}
	for _, name := range slices.Sorted(maps.Keys(registered)) {
		if _, ok := docs[name]; !ok {
			m := registered[name]
			t.Errorf("docs/metrics.md lacks a row such as\n| `%s` | %s | … | %s | %s |", name, m.Kind, m.Labels, m.Help)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		r, ok := registered[name]
		if !ok {
			t.Errorf("docs/metrics.md has %s, which no server registers", name)
			continue
		}
		if diff := cmp.Diff(docs[name], r, cmp.AllowUnexported(documented{})); diff != "" {
			t.Errorf("%s (-docs/metrics.md +server):\n%s", name, diff)
		}
	}
}

// callWebhook waits until a call of a webhook has failed.
func callWebhook(t *testing.T, s *server) {
	t.Helper()
	targets := outbound.NewTargets(s.Pool(), s.Log())
	if err := targets.PutWebhook(t.Context(), outbound.Webhook{
		Name: "crm", URL: "https://127.0.0.1/", Secrets: [][]byte{new(seal.Box).Seal([]byte("secret"), "")},
		Events: []string{outbound.DriftFound}, Batch: 1, State: outbound.Active,
	}, 0); err != nil {
		t.Fatal(err)
	}
	if err := targets.Enqueue(t.Context(), s.Log().PartitionOf("ada"), outbound.DriftFound, "ada"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the call of the webhook is measured", func() bool {
		families, err := s.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "badged_webhook_call_seconds" {
				return true
			}
		}
		return false
	})
}

// checkUnit checks that the unit in a name matches the page.
func checkUnit(t *testing.T, name string, m documented) {
	t.Helper()
	named := strings.HasSuffix(strings.TrimSuffix(name, "_total"), "_seconds")
	if named != (m.unit == "seconds") {
		t.Errorf("docs/metrics.md: the unit of %s is given as %q", name, m.unit)
	}
}
