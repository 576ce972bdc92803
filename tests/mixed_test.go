package tests

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
)

var (
	mixedFor   = flag.Duration("mixed", 4*time.Second, "how long TestMixedLoad publishes")
	mixedRate  = flag.Int("mixed-rate", 145, "how many events a second TestMixedLoad publishes at most, one at a time")
	mixedUsers = flag.Int("mixed-users", 500, "how many users TestMixedLoad has; a tenth of them are connected")
)

// Two processes serve the traffic of a chat, with two webhooks of which one always fails, and with
// revocations and erasures. In the end all counts are right. Only the log and tables that grow with
// users have grown: see growth.
func TestMixedLoad(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	database := newDatabaseOn(t, server)
	redis := newRedis(t)
	args := []string{
		"serve", "--listen=127.0.0.1:0", "--database-url=" + database, "--redis-url=" + redis.URL(), "--webhooks-allow-private",
	}
	withAdmin := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "BADGED_ADMIN_KEYS=ops="+adminKey) }
	p := []*process{launch(t, withAdmin, args...), launch(t, withAdmin, args...)}
	works := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(works.Close)
	for name, url := range map[string]string{"works": works.URL, "fails": failingEndpoint(t)} {
		operator(t, p[0], http.MethodPut, name, fmt.Sprintf(`{"url":%q,"events":["badge.changed"],"secrets":[%q]}`, url, hookSecret), http.StatusCreated)
	}
	for i := range *mixedUsers / 10 {
		connect(t, p[i%len(p)].url, mixedUser(i))
	}

	l := &mixedLoad{t: t, p: p, random: rand.New(rand.NewPCG(1, 2)), seqs: map[string]int{}}
	g := newGrowth(t, server, database, p, &l.published)
	done := make(chan struct{})
	time.AfterFunc(*mixedFor, func() { close(done) })
	sampling := make(chan struct{})
	go func() { defer close(sampling); every(done, *mixedFor/growthSamples, g.sample) }()
	rare := time.NewTicker(max(*mixedFor/40, time.Second))
	defer rare.Stop()
	every(done, time.Second/time.Duration(*mixedRate), func() {
		select {
		case <-rare.C:
			l.rare(database)
		default:
			l.publish()
		}
	})
	<-sampling
	for len(g.samples) < 3 { // on a busy machine a short run has few samples
		g.sample()
	}
	position := publish(t, p[0], delivered("the last", 1, `"`+mixedUser(0)+`"`))
	total(t, p[1], mixedUser(0), position)
	must(t, "verify", "--quiet", "--database-url="+database)
	g.report()
}

func mixedUser(n int) string { return fmt.Sprintf("user-%d", n) }

// mixedLoad draws the actions of users of a chat.
type mixedLoad struct {
	t         *testing.T
	p         []*process
	random    *rand.Rand
	seqs      map[string]int // the last message of each conversation
	erased    int
	published atomic.Int64
}

// user draws a user. A few users have most of the traffic, and one of them has most of theirs.
func (l *mixedLoad) user() string {
	if l.random.IntN(20) == 0 {
		return mixedUser(0)
	}
	return mixedUser(min(l.random.IntN(*mixedUsers), l.random.IntN(*mixedUsers)))
}

// publish publishes one event.
func (l *mixedLoad) publish() {
	n := int(l.published.Load())
	user, id := l.user(), fmt.Sprint("mixed-", n)
	conversation := fmt.Sprint("with ", user, " ", l.random.IntN(20))
	room := fmt.Sprint("room ", l.random.IntN(max(1, *mixedUsers/250)))
	var typ, data string
	switch what := l.random.IntN(100); {
	case what < 60:
		l.seqs[conversation]++
		typ, data = "message.delivered", fmt.Sprintf(`{"conversation_id":%q,"seq":%d,"user_ids":[%q]}`, conversation, l.seqs[conversation], user)
	case what < 75:
		typ, data = "conversation.read", fmt.Sprintf(`{"conversation_id":%q,"up_to_seq":%d,"user_ids":[%q]}`, conversation, l.seqs[conversation]+1, user)
	case what < 78:
		typ, data = "conversation.marked_unread", fmt.Sprintf(`{"conversation_id":%q,"user_ids":[%q]}`, conversation, user)
	case what < 83:
		typ, data = "room.joined", fmt.Sprintf(`{"conversation_id":%q,"user_ids":[%q]}`, room, user)
	case what < 87:
		typ, data = "conversation.left", fmt.Sprintf(`{"conversation_id":%q,"user_ids":[%q]}`, room, user)
	default:
		l.seqs[room]++
		typ, data = "room.posted", fmt.Sprintf(`{"conversation_id":%q,"seq":%d}`, room, l.seqs[room])
	}
	if attempt(l.t, l.p[n%len(l.p)], event(id, typ, data)) {
		l.published.Add(1)
	}
}

// rare revokes the tokens of a user, and erases another user.
func (l *mixedLoad) rare(database string) {
	disconnect(l.t, l.p[0], l.user(), `{"revoke":true}`)
	l.erased++
	must(l.t, "user", "erase", mixedUser(*mixedUsers-l.erased%*mixedUsers), "--yes", "--database-url="+database)
}

// growthSamples is the number of samples of a run.
const growthSamples = 30

// growth records what servers and their database use, by the number of events published so far.
type growth struct {
	t         *testing.T
	server    *pgtest.Server
	database  string
	p         []*process
	published *atomic.Int64
	samples   []growthSample
}

// growthSample is one sample of growth.
type growthSample struct {
	events float64
	// sums are counters, which only grow. They are compared per event.
	sums map[string]float64
	// levels are sizes, which are compared directly.
	levels map[string]float64
}

func newGrowth(t *testing.T, server *pgtest.Server, database string, p []*process, published *atomic.Int64) *growth {
	return &growth{t: t, server: server, database: database, p: p, published: published}
}

// tableSizesSQL returns the size of each table with its indexes, summed over partitions.
const tableSizesSQL = `SELECT regexp_replace(relname, '(_p\d+|_\d+)+$', ''), sum(pg_total_relation_size(oid))::float8
FROM pg_class WHERE relnamespace = 'badged'::regnamespace AND relkind = 'r' GROUP BY 1`

func (g *growth) sample() {
	s := growthSample{events: float64(g.published.Load()), sums: map[string]float64{}, levels: map[string]float64{}}
	ctx := context.WithoutCancel(g.t.Context())
	conn := pgtest.Connect(g.t, g.database)
	defer conn.Close(ctx)
	var wal float64
	if err := conn.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(&wal); err != nil {
		g.t.Error(err)
	}
	s.sums["WAL, bytes"] = wal
	rows, err := conn.Query(ctx, tableSizesSQL)
	if err != nil {
		g.t.Error(err)
	}
	for rows.Next() {
		var table string
		var size float64
		if err := rows.Scan(&table, &size); err != nil {
			g.t.Error(err)
		}
		s.sums["table "+table+", bytes"] = size
	}
	for i, p := range g.p {
		page := metricsOf(g.t, p)
		name := fmt.Sprintf("process %d, ", i+1)
		s.sums[name+"processor, µs"] = 1e6 * metric(g.t, page, "process_cpu_seconds_total")
		s.levels[name+"goroutines"] = metric(g.t, page, "go_goroutines")
		s.levels[name+"open files"] = metric(g.t, page, "process_open_fds")
		s.levels[name+"memory, MiB"] = metric(g.t, page, "process_resident_memory_bytes") / (1 << 20)
		s.levels[name+"series of metrics"] = float64(strings.Count(page, "\n"))
	}
	g.samples = append(g.samples, s)
}

// growing are the tables that may grow, with events, users and rooms. All others must not grow.
var growing = []string{"badged_events", "users", "conversations", "paths", "rooms", "room_chunks", "dedup", "audit", "erasures", "revocations", "erased_revocations", "log_ranges"}

// report prints the first third of each series beside the last third. In a run of at least a minute
// it fails the test for every series that must not grow but does.
func (g *growth) report() {
	g.t.Helper()
	third := len(g.samples) / 3
	if third == 0 {
		g.t.Fatalf("there are %d samples", len(g.samples))
	}
	first, middle, last := g.samples[0], g.samples[third], g.samples[len(g.samples)-1-third]
	end := g.samples[len(g.samples)-1]
	var table strings.Builder
	grown := func(name string, early, late, slack float64) {
		fmt.Fprintf(&table, "| %s | %.1f | %.1f |\n", name, early, late)
		if *mixedFor >= flatFrom && late > flatFactor*early+slack {
			g.t.Errorf("%s has grown from %.1f to %.1f", name, early, late)
		}
	}
	fmt.Fprintf(&table, "%.0f events in %v, first third and last third:\n", end.events, *mixedFor)
	for name := range end.sums {
		perEvent := func(from, to growthSample) float64 {
			return (to.sums[name] - from.sums[name]) / max(1, to.events-from.events)
		}
		early, late := perEvent(first, middle), perEvent(last, end)
		base, isTable := strings.CutPrefix(name, "table ")
		switch {
		case isTable && g.mayGrow(base):
			fmt.Fprintf(&table, "| %s an event | %.1f | %.1f |\n", name, early, late)
		case isTable:
			grown(name+" an event", early, late, 10)
		default:
			grown(name+" an event", early, late, 0)
		}
	}
	for name := range end.levels {
		mean := func(some []growthSample) (sum float64) {
			for _, s := range some {
				sum += s.levels[name] / float64(len(some))
			}
			return sum
		}
		grown(name, mean(g.samples[:third]), mean(g.samples[len(g.samples)-third:]), 20)
	}
	g.t.Log(table.String())
}

func (g *growth) mayGrow(table string) bool {
	for _, prefix := range growing {
		if strings.HasPrefix(table, prefix) {
			return true
		}
	}
	return false
}
