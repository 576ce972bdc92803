package obs_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/obs"
)

func TestLoggerFormats(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			log, err := obs.NewLogger(&out, "info", format)
			if err != nil {
				t.Fatal(err)
			}
			log.Info("folded", "events", 3)
			var line map[string]any
			isJSON := json.Unmarshal(out.Bytes(), &line) == nil
			switch {
			case isJSON != (format == "json"):
				t.Errorf("it wrote %s", &out)
			case isJSON && (line["msg"] != "folded" || line["events"] != 3.0 || line["level"] != "INFO"):
				t.Errorf("it wrote %s", &out)
			case !isJSON && !strings.Contains(out.String(), "level=INFO msg=folded events=3\n"):
				t.Errorf("it wrote %s", &out)
			}
		})
	}
}

func TestLoggerLevels(t *testing.T) {
	for level, want := range map[string]string{
		"debug": "debug info warn error",
		"info":  "info warn error",
		"warn":  "warn error",
		"error": "error",
	} {
		t.Run(level, func(t *testing.T) {
			var out bytes.Buffer
			log, err := obs.NewLogger(&out, level, "json")
			if err != nil {
				t.Fatal(err)
			}
			log.Debug("debug")
			log.Info("info")
			log.Warn("warn")
			log.Error("error")
			var got []string
			for line := range bytes.Lines(out.Bytes()) {
				var entry struct{ Msg string }
				if err := json.Unmarshal(line, &entry); err != nil {
					t.Fatal(err)
				}
				got = append(got, entry.Msg)
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("it wrote %s, want %s", text, want)
			}
		})
	}
}

func TestInvalidLoggers(t *testing.T) {
	for _, test := range []struct{ level, format, want string }{
		{"loud", "text", `log level "loud": want debug, info, warn or error`},
		{"", "text", `log level "": want debug, info, warn or error`},
		{"info", "xml", `log format "xml": want text or json`},
		{"info", "", `log format "": want text or json`},
	} {
		log, err := obs.NewLogger(&bytes.Buffer{}, test.level, test.format)
		if err == nil || err.Error() != test.want || log != nil {
			t.Errorf("level %q, format %q: error is %v, want %s", test.level, test.format, err, test.want)
		}
	}
}

func TestMetrics(t *testing.T) {
	r := obs.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "badged_test_total", Help: "For a test."})
	r.MustRegister(c)
	c.Add(7)
	w := httptest.NewRecorder()
	obs.MetricsHandler(r).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("answer is %d %s", w.Code, w.Body)
	}
	for _, want := range []string{"badged_test_total 7\n", "\nbadged_build_info{version=\"", "\ngo_goroutines ", "\nprocess_start_time_seconds "} {
		if !strings.Contains("\n"+w.Body.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
}
