package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/badged/badged/internal/devtest/snippets"
)

const (
	// root is the module's directory.
	root       = "../.."
	monitoring = root + "/deploy/prometheus/"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// alert is a rule of deploy/prometheus/alerts.yaml.
type alert struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there is no alert")
	}
	return all
}

// panel is a panel of deploy/grafana/badged.json.
type panel struct {
	Title, Type string
	Targets     []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/badged.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	var all []panel
	for _, p := range dashboard.Panels {
		if p.Type != "row" {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		t.Fatal("there is no panel")
	}
	return all
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(badged_\\w+)` \\| (\\w+) \\| [^|]* \\| ([^|]*) \\|")
	labelOf   = regexp.MustCompile("(?:^|; )`(\\w+)`")
)

// metrics returns the labels of every series in docs/metrics.md, which a test
// of internal/server/app compares with a server.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{
		// Metrics of the process, not listed in docs/metrics.md, that alerts and panels use.
		"process_cpu_seconds_total": nil, "process_resident_memory_bytes": nil, "process_open_fds": nil, "process_max_fds": nil,
	}
	for _, row := range metricRow.FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		var labels []string
		for _, l := range labelOf.FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, l[1])
		}
		if row[2] != "histogram" {
			all[row[1]] = labels
			continue
		}
		all[row[1]+"_bucket"] = append(slices.Clone(labels), "le")
		all[row[1]+"_sum"], all[row[1]+"_count"] = labels, labels
	}
	if len(all) < 50 {
		t.Fatalf("docs/metrics.md has only %d metrics", len(all))
	}
	return all
}

var (
	selector = regexp.MustCompile(`\b((?:badged|process)_\w+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// unknown returns the names in an expression that no server exports: unknown metrics, and
// labels that no metric of the expression has.
func unknown(expr string, known map[string][]string) []string {
	var strange []string
	// Labels that Prometheus or its operator adds to every series; "" is from an empty list.
	there := []string{"instance", "job", "namespace", ""}
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		labels, ok := known[s[1]]
		if !ok {
			strange = append(strange, s[1])
			continue
		}
		there = append(there, labels...)
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(labels, m[1]) && !slices.Contains(there[:3], m[1]) {
				strange = append(strange, s[1]+"{"+m[1]+"}")
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(g[1], ",") {
			if label = strings.TrimSpace(label); !slices.Contains(there, label) {
				strange = append(strange, label)
			}
		}
	}
	return strange
}

func TestUnknown(t *testing.T) {
	known := map[string][]string{"badged_a_total": {"route"}, "badged_b_bucket": {"le"}}
	for expr, want := range map[string]string{
		`sum by (namespace, route) (rate(badged_a_total{route="x",instance=~"y"}[5m]))`: "",
		`badged_c`:                                 "badged_c",
		`badged_a_total{code="1"}`:                 "badged_a_total{code}",
		`sum by (le, code) (badged_b_bucket)`:      "code",
		`badged_b_bucket and on (le) badged_b`:     "badged_b",
		`time() - max by (route) (badged_a_total)`: "",
	} {
		if got := strings.Join(unknown(expr, known), " "); got != want {
			t.Errorf("in %s unknown are %q, want %q", expr, got, want)
		}
	}
}

func TestAlertsUseKnownMetrics(t *testing.T) {
	known := metrics(t)
	for _, a := range alerts(t) {
		for _, name := range unknown(a.Expr, known) {
			t.Errorf("%s speaks of %s, which docs/metrics.md does not have", a.Alert, name)
		}
	}
}

func TestPanelsUseKnownMetrics(t *testing.T) {
	known := metrics(t)
	shown := map[string]bool{}
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			for _, name := range unknown(target.Expr, known) {
				t.Errorf("the panel %q shows %s, which docs/metrics.md does not have", p.Title, name)
			}
			for _, s := range selector.FindAllStringSubmatch(target.Expr, -1) {
				shown[s[1]] = true
			}
		}
	}
	if !shown["badged_projector_lag_seconds"] || !shown["badged_verify_mismatches_total"] {
		t.Error("the dashboard does not show whether badges are late or wrong")
	}
}

// Each alert has a section in docs/runbooks.md, and each such section belongs to an alert.
func TestAlertsHaveRunbooks(t *testing.T) {
	const page = "https://github.com/badged/badged/blob/main/docs/runbooks.md#"
	var headings []string
	for line := range strings.Lines(read(t, "docs/runbooks.md")) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			headings = append(headings, strings.TrimSpace(heading))
		}
	}
	for _, a := range alerts(t) {
		if want := page + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("the runbook of %s is at %s, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if a.Annotations["summary"] == "" || a.Labels["severity"] != "page" && a.Labels["severity"] != "ticket" {
			t.Errorf("%s lacks a summary, or has the severity %q", a.Alert, a.Labels["severity"])
		}
		i := slices.Index(headings, a.Alert)
		if i < 0 {
			t.Errorf("docs/runbooks.md has no section %s", a.Alert)
			continue
		}
		headings = slices.Delete(headings, i, i+1)
	}
	for _, h := range headings {
		if strings.HasPrefix(h, "Badged") {
			t.Errorf("docs/runbooks.md has the section %s, which belongs to no alert", h)
		}
	}
}

// Each alert has a test in which it fires and a test in which it does not. .ci/deploy runs
// these tests.
func TestAlertsAreTested(t *testing.T) {
	tests := read(t, "deploy/prometheus/alerts_test.yaml") + read(t, "deploy/prometheus/alerts_slow_test.yaml")
	for _, a := range alerts(t) {
		for _, how := range []string{" fires\n", " stays quiet\n"} {
			if !strings.Contains(tests, "name: "+a.Alert+how) {
				t.Errorf("no test is called %q", a.Alert+strings.TrimSpace(how))
			}
		}
	}
}

// promtool accepts every expression of alerts and panels.
func TestPromQL(t *testing.T) {
	promtool(t, "check", "rules", monitoring+"alerts.yaml")
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: panels\n    rules:\n")
	forGrafana := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	for i, p := range panels(t) {
		for j, target := range p.Targets {
			expr, err := json.Marshal(forGrafana.Replace(target.Expr)) // JSON is valid YAML
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&rules, "      - {record: 'panel:%d:%d', expr: %s}\n", i, j, expr)
		}
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// Prometheus accepts the configuration of docs/deploying.md, with the alerts beside it.
func TestConfigurationOfPrometheus(t *testing.T) {
	page := snippets.With(t, "docs/deploying.md", "scrape_configs:", "yaml")
	dir := t.TempDir()
	for name, text := range map[string]string{"prometheus.yaml": page.Text, "alerts.yaml": read(t, "deploy/prometheus/alerts.yaml")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, "check", "config", filepath.Join(dir, "prometheus.yaml"))
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v (.ci/needs installs it)\n%s", strings.Join(args, " "), err, out)
	}
}
