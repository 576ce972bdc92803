package tests

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/privateredis"
)

var (
	soakFor     = flag.Duration("soak", 4*time.Second, "how long TestSoak disturbs its clients")
	soakClients = flag.Int("soak-clients", 100, "how many clients TestSoak has, one user each")
	soakRate    = flag.Int("soak-rate", 50, "how many events a second are published in TestSoak")
)

const (
	// soakMembers is the number of users of each conversation, and soakHall the number of
	// members of each room. All users are also in the room soakTown.
	soakMembers = 5
	soakHall    = 50
	soakTown    = "town"
	// soakRestarts is how often Redis is killed and started again.
	soakRestarts = 6
	// soakStays is how long a client stays connected on average.
	soakStays = time.Minute
	// flatFrom is the shortest run in which growing memory fails the test. flatFactor is the
	// largest allowed growth from early to late samples; the first samples, while a process
	// warms up, do not count.
	flatFrom   = time.Minute
	flatFactor = 1.5
)

// Clients lose their connections at random, Redis restarts at intervals, and messages arrive in
// conversations and rooms and are read. In the end each client has the state in Postgres, no version
// has decreased, and the servers' memory has not grown.
func TestSoak(t *testing.T) {
	database, redis := newDatabase(t), newRedis(t)
	p := roles(t, database, redis, "--reconcile-interval=10s")
	gateway := p["gateway"]
	before := residue(t, gateway)

	var watching sync.WaitGroup
	done := make(chan struct{})
	end := sync.OnceFunc(func() { close(done); watching.Wait() })
	defer end()
	s := &soak{t: t, api: p["api"], gateway: gateway.url}
	s.connect(done, &watching)
	t.Logf("%d clients are connected", len(s.apps))

	running := make(chan struct{})
	go func() {
		defer close(running)
		look := time.NewTicker(100 * time.Millisecond)
		defer look.Stop()
		for began := time.Now(); time.Since(began) < *soakFor || !s.happened(); {
			<-look.C
		}
	}()
	var disturbing sync.WaitGroup
	disturbing.Go(func() { s.publish(running) })
	disturbing.Go(func() { s.drop(running) })
	disturbing.Go(func() { s.restart(running, redis) })
	memory := sampleMemory(running, p)
	disturbing.Wait()

	wrong := s.settle()
	lost, published := s.lost.Load(), s.published.Load()
	page := metricsOf(t, gateway)
	t.Logf("in %v: %d events (%.0f a second, %d requests repeated), %d connections lost and made again, %d restarts of Redis, %v gaps, %v repairs; %d clients wrong",
		*soakFor, published, float64(published)/soakFor.Seconds(), s.retried.Load(), lost, s.restarts.Load(),
		metric(t, page, "badged_gateway_bus_gaps_total"), metric(t, page, "badged_gateway_reconciliation_repairs_total"), wrong)
	must(t, "verify", "--database-url="+database)
	memory.judge(t)

	end()
	awaitNothingLeft(t, gateway, before)
}

// soak disturbs clients and counts what happened.
type soak struct {
	t                                  *testing.T
	api                                *process
	gateway                            string
	apps                               []*soakApp
	published, retried, lost, restarts atomic.Int64
}

// happened reports whether every kind of disturbance has occurred at least once. On a busy machine that
// can take longer than a short run.
func (s *soak) happened() bool {
	return s.published.Load() > 0 && s.lost.Load() > 0 && s.restarts.Load() > 0
}

// soakApp is the app of one user; it reconnects whenever its connection ends.
type soakApp struct {
	mu sync.Mutex
	c  *client
}

func (a *soakApp) client() *client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.c
}

func soakUser(i int) string { return fmt.Sprintf("user-%d", i) }

// connect connects all clients and keeps them connected until done is closed.
func (s *soak) connect(done <-chan struct{}, watching *sync.WaitGroup) {
	s.apps = make([]*soakApp, *soakClients)
	slots := make(chan struct{}, 20)
	var connecting sync.WaitGroup
	for i := range s.apps {
		slots <- struct{}{}
		connecting.Go(func() {
			defer func() { <-slots }()
			c, err := open(s.t, s.gateway, tokenFor(s.t, soakUser(i), *soakFor+time.Hour), http.DefaultClient)
			if err == nil {
				c.forgets = true
				err = c.hello()
			}
			if err != nil {
				s.t.Errorf("connect: %v", err)
				return
			}
			s.apps[i] = &soakApp{c: c}
		})
	}
	connecting.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
	for _, a := range s.apps {
		watching.Go(func() { s.keep(done, a) })
	}
}

// keep keeps an app connected until done is closed.
func (s *soak) keep(done <-chan struct{}, a *soakApp) {
	for {
		c := a.client()
		select {
		case <-done:
			c.close()
			return
		case <-c.ended:
		}
		s.lost.Add(1)
		back, err := open(s.t, s.gateway, c.jwt, http.DefaultClient)
		if err == nil {
			err = back.takeUp(c)
		}
		if err != nil {
			select {
			case <-done:
			default:
				s.t.Errorf("connect again: %v", err)
			}
			return
		}
		a.mu.Lock()
		a.c = back
		a.mu.Unlock()
	}
}

// every calls f every interval until done is closed.
func every(done <-chan struct{}, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			f()
		}
	}
}

// soakRooms draws events of rooms.
type soakRooms struct {
	random *rand.Rand
	users  int
	last   map[string]int // seq by room
}

// count returns how many rooms there are besides the room of all users.
func (r *soakRooms) count() int { return max(1, r.users/soakHall) }

// members returns the members of a room as JSON strings.
func (r *soakRooms) members(hall int) string {
	var ids []string
	for i := hall; i < r.users; i += r.count() {
		ids = append(ids, fmt.Sprintf("%q", soakUser(i)))
	}
	return strings.Join(ids, ",")
}

// join returns the events by which all users join their rooms.
func (r *soakRooms) join() (joins []string) {
	for hall := range r.count() {
		members := r.members(hall)
		for _, room := range []string{fmt.Sprint("hall ", hall), soakTown} {
			joins = append(joins, event(fmt.Sprint("join ", room, " ", hall), "room.joined", fmt.Sprintf(`{"conversation_id":%q,"user_ids":[%s]}`, room, members)))
		}
	}
	return joins
}

// post returns a message to a room.
func (r *soakRooms) post(id int, room, sender string) string {
	r.last[room]++
	return event(fmt.Sprint(id), "room.posted", fmt.Sprintf(`{"conversation_id":%q,"seq":%d,"sender_id":%q}`, room, r.last[room], sender))
}

// draw returns an event of a room.
func (r *soakRooms) draw(id int) string {
	hall := r.random.IntN(r.count())
	room := fmt.Sprint("hall ", hall)
	one := soakUser(hall + r.count()*r.random.IntN((r.users-hall-1)/r.count()+1))
	about := func(typ, fields string) string {
		return event(fmt.Sprint(id), typ, fmt.Sprintf(`{"conversation_id":%q,%s}`, room, fields))
	}
	switch n := r.random.IntN(20); {
	case r.last[room] == 0 || n < 13:
		return r.post(id, room, one)
	case n < 17:
		return about("conversation.read", fmt.Sprintf(`"user_ids":[%q],"up_to_seq":%d`, one, r.last[room]))
	case n == 17:
		return about("room.recalled", fmt.Sprintf(`"seq":%d`, 1+r.random.IntN(r.last[room])))
	case n == 18:
		return about("room.left", fmt.Sprintf(`"user_ids":[%q]`, one))
	default:
		return about("room.joined", fmt.Sprintf(`"user_ids":[%s]`, r.members(hall)))
	}
}

// publish publishes messages and some reads, a tenth of them to rooms. Once a second it publishes a
// message to all users.
func (s *soak) publish(done <-chan struct{}) {
	const perSecond = 10 // requests
	random := rand.New(rand.NewPCG(1, 2))
	rooms := &soakRooms{random: random, users: len(s.apps), last: map[string]int{}}
	for joins := range slices.Chunk(rooms.join(), 100) {
		for !attempt(s.t, s.api, "["+strings.Join(joins, ",")+"]") {
			s.retried.Add(1)
		}
	}
	last := map[int]int{} // the last seq of each conversation
	n := 0
	every(done, time.Second/perSecond, func() {
		batch := make([]string, max(1, *soakRate/perSecond))
		for i := range batch {
			n++
			switch {
			case i == 0 && random.IntN(perSecond) == 0:
				batch[i] = rooms.post(n, soakTown, soakUser(random.IntN(len(s.apps))))
				continue
			case random.IntN(10) == 0:
				batch[i] = rooms.draw(n)
				continue
			}
			conversation := random.IntN(len(s.apps))
			members := make([]string, soakMembers)
			for m := range members {
				members[m] = fmt.Sprintf("%q", soakUser((conversation+m*17)%len(s.apps)))
			}
			typ, field := "message.delivered", "seq"
			if random.IntN(4) == 0 && last[conversation] > 0 {
				typ, field = "conversation.read", "up_to_seq"
			} else {
				last[conversation]++
			}
			batch[i] = event(fmt.Sprint(n), typ, fmt.Sprintf(`{"conversation_id":"c%d",%q:%d,"user_ids":[%s]}`,
				conversation, field, last[conversation], strings.Join(members, ",")))
		}
		for !attempt(s.t, s.api, "["+strings.Join(batch, ",")+"]") {
			select {
			case <-done:
				return
			default:
				s.retried.Add(1)
			}
		}
		s.published.Add(int64(len(batch)))
	})
}

// drop closes connections at random, without a close frame.
func (s *soak) drop(done <-chan struct{}) {
	random := rand.New(rand.NewPCG(3, 4))
	stays := min(soakStays, *soakFor)
	every(done, stays/time.Duration(len(s.apps)), func() {
		_ = s.apps[random.IntN(len(s.apps))].client().conn.CloseNow() // the app may be reconnecting
	})
}

// restart kills Redis and starts it again.
func (s *soak) restart(done <-chan struct{}, redis *privateredis.Server) {
	every(done, 2**soakFor/(2*soakRestarts+1), func() { // the last restart is not at the very end
		if err := redis.Restart(s.t.Context()); err != nil {
			s.t.Error(err)
		}
		s.restarts.Add(1)
	})
}

// settle waits until every client has the state in Postgres, and returns how
// many do not reach it.
func (s *soak) settle() (wrong int) {
	position := publish(s.t, s.api, event("the last", "message.delivered", `{"conversation_id":"last","seq":1,"user_ids":["user-0"]}`))
	deadline := time.After(patience)
	for {
		var behind *client
		wrong = 0
		for from := 0; from < len(s.apps); from += 1000 {
			ids, _ := users(min(len(s.apps), from+1000)) // as soakUser names them
			found, _ := queryBadges[badge](s.t, s.api, ids[from:], position)
			for i, b := range found {
				c := s.apps[from+i].client()
				c.mu.Lock()
				if c.total != b.Total || c.version != b.Version {
					wrong, behind = wrong+1, c
				}
				c.mu.Unlock()
			}
		}
		if behind == nil {
			return 0
		}
		behind.mu.Lock()
		changed := behind.changed
		behind.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(time.Second): // the state may have changed before the wait began
		case <-deadline:
			s.t.Errorf("%d clients differ from Postgres", wrong)
			return wrong
		}
	}
}

// memorySamples has the resident memory of processes by role, in MiB, sampled
// at equal intervals.
type memorySamples map[string][]float64

// sampleMemory samples until done is closed.
func sampleMemory(done <-chan struct{}, p map[string]*process) memorySamples {
	const samples = 60
	found := memorySamples{}
	every(done, max(*soakFor/samples, 100*time.Millisecond), func() {
		for role, of := range p {
			var pages, resident int64
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", of.cmd.Process.Pid))
			if err != nil {
				continue // not on Linux
			}
			if _, err := fmt.Sscan(string(b), &pages, &resident); err == nil {
				found[role] = append(found[role], float64(resident*int64(os.Getpagesize()))/(1<<20))
			}
		}
	})
	return found
}

// judge compares the last fifth of the samples with the second fifth, by which every kind of
// disturbance has occurred once.
func (m memorySamples) judge(t *testing.T) {
	t.Helper()
	mean := func(some []float64) float64 {
		sum := 0.0
		for _, v := range some {
			sum += v
		}
		return sum / float64(len(some))
	}
	for role, all := range m {
		fifth := len(all) / 5
		if fifth == 0 {
			continue
		}
		early, late := mean(all[fifth:2*fifth]), mean(all[len(all)-fifth:])
		t.Logf("resident memory of %s: %.0f MiB early, %.0f MiB late, at most %.0f MiB", role, early, late, slices.Max(all))
		if *soakFor >= flatFrom && late > flatFactor*early {
			t.Errorf("the memory of %s has grown by more than %v: %.0f", role, flatFactor, all)
		}
	}
}
