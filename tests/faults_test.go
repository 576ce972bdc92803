package tests

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The projector is killed after a commit and before it has published the updates to Redis. The
// tables are right, and connected clients get the numbers by reconciliation.
func TestKilledBetweenCommitAndPublish(t *testing.T) {
	t.Parallel()
	database, redis := newDatabase(t), newRedis(t)
	p := roles(t, database, redis, "--reconcile-interval=1s")
	ann := connect(t, p["gateway"].url, "ann")
	position := publish(t, p["api"], delivered("c", 1, `"ann"`))
	total(t, p["api"], "ann", position)
	ann.awaitTotal(1)

	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	position = publish(t, p["api"], delivered("c", 2, `"ann"`))
	wantTotal(t, p["api"], "ann", position, 2)
	p["projector"].kill()
	if err := redis.Resume(); err != nil {
		t.Fatal(err)
	}
	ann.awaitTotal(2)

	serve(t, database, "--redis-url="+redis.URL(), "--roles=projector")
	publish(t, p["api"], delivered("c", 3, `"ann"`))
	ann.awaitTotal(3)
}

// awaitBus waits until readiness and metrics report a state of Redis. The server must be ready in
// every state, since it can serve without Redis.
func awaitBus(t *testing.T, p *process, redis string, connected float64) {
	t.Helper()
	await(t, fmt.Sprintf("Redis %s, badged_bus_connected %v", redis, connected), func() bool {
		status, _, answer := request(t, http.MethodGet, p.url+"/readyz", "", "")
		is := metric(t, metricsOf(t, p), "badged_bus_connected")
		return status == http.StatusOK && strings.Contains(answer, `"redis":"`+redis) && is == connected
	})
}

// The server is killed and restarted during a `badged load`, and the load is repeated. Every badge
// matches the file of traffic.
func TestLoadAcrossAKill(t *testing.T) {
	t.Parallel()
	file, want := makeTraffic(t)
	database := newDatabase(t)
	p := serve(t, database)
	address := strings.TrimPrefix(p.url, "http://")

	load := exec.CommandContext(t.Context(), binary, "load", file, "--url="+p.url, "--publisher-key="+publisherKey, "--batch-size=50", "--json")
	load.Env = environment()
	out := &output{}
	load.Stdout, load.Stderr = out, out
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "part of the load in the log", func() bool {
		return metric(t, metricsOf(t, p), "badged_log_events_appended_total") > 500
	})
	p.kill()
	p = launch(t, nil, "serve", "--listen="+address, "--database-url="+database)
	if err := load.Wait(); err != nil { // the load waited for the server and continued
		t.Fatalf("the load did not survive the restart: %v\n%s", err, out)
	}

	var summary loadSummary
	again := must(t, "load", file, "--url="+p.url, "--publisher-key="+publisherKey, "--json", "--quiet")
	if err := json.Unmarshal([]byte(again), &summary); err != nil {
		t.Fatal(err)
	}
	var sum int64
	for user, n := range want {
		sum += n
		wantTotal(t, p, user, "0", n)
	}
	if summary.TotalUnread != sum {
		t.Errorf("the load counts %d unread, the file says %d", summary.TotalUnread, sum)
	}
}

// loadSummary has the fields of a load's summary that the tests use.
type loadSummary struct {
	Events      int64 `json:"events"`
	Messages    int64 `json:"messages"`
	Reads       int64 `json:"reads"`
	Users       int64 `json:"users"`
	TotalUnread int64 `json:"total_unread"`
}

// makeTraffic writes a file of traffic, and computes the resulting unread counts independently: a
// user who answers has read all earlier messages.
func makeTraffic(t *testing.T) (file string, unread map[string]int64) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	type inbox struct{ user, peer string }
	waiting := map[inbox]int64{}
	var b strings.Builder
	for i := range 4000 {
		from, to := random.IntN(40), random.IntN(40)
		if from == to {
			continue
		}
		src, dst := fmt.Sprint(from), fmt.Sprint(to)
		fmt.Fprintf(&b, "%s %s %d\n", src, dst, 1_082_040_961+i)
		waiting[inbox{src, dst}] = 0
		waiting[inbox{dst, src}]++
	}
	file = filepath.Join(t.TempDir(), "traffic.txt")
	writeFile(t, file, b.String())
	unread = map[string]int64{}
	for in, n := range waiting {
		unread[in.user] += n
	}
	return file, unread
}

// metric returns the value of a metric without labels.
func metric(t *testing.T, page, name string) float64 {
	t.Helper()
	for line := range strings.Lines(page) {
		var value float64
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// A server starts while Redis is down. It serves clients from Postgres, reports the outage, and
// recovers without an operator when Redis starts.
func TestRedisIsDownAtStart(t *testing.T) {
	t.Parallel()
	database, redis := newDatabase(t), newRedis(t)
	redis.Kill()
	p := serve(t, database, "--redis-url="+redis.URL(), "--reconcile-interval=1s")
	awaitBus(t, p, "not connected", 0)
	ann := connect(t, p.url, "ann")
	publish(t, p, delivered("c", 1, `"ann"`))
	ann.awaitTotal(1)
	restart(t, redis)
	awaitBus(t, p, "ok", 1)
	publish(t, p, delivered("c", 2, `"ann"`))
	ann.awaitTotal(2)
}

// awaitMetric waits until a metric of a server is n. It waits since an effect can be visible before
// the metric counts it.
func awaitMetric(t *testing.T, p *process, name string, n float64) {
	t.Helper()
	for range polls(t, name) {
		switch is := metric(t, metricsOf(t, p), name); {
		case is == n:
			return
		case is > n:
			t.Fatalf("%s is %v, want %v", name, is, n)
		}
	}
}

// metricsOf returns the metrics of a server.
func metricsOf(t *testing.T, p *process) string {
	t.Helper()
	_, _, page := request(t, http.MethodGet, p.url+"/metrics", "", "")
	return sumOfShards(t, page)
}
