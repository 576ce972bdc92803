package tests

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// relayedStack is two shards, each on its own Postgres server, a server of badged, and an outbox on a
// third Postgres server.
type relayedStack struct {
	servers     []*pgtest.Server
	urls, flags []string
	outbox      string
	p           *process
	// moves is a user of partition 0, stays a user of another partition of the first shard,
	// and other a user of the second shard.
	moves, stays, other string
}

func newRelayedStack(t *testing.T) *relayedStack {
	t.Helper()
	s := &relayedStack{servers: []*pgtest.Server{pgtest.NewServer(t), pgtest.NewServer(t)}}
	for _, server := range s.servers {
		s.urls = append(s.urls, server.NewDB(t, pgtest.Template{}))
	}
	s.flags = shardFlags(s.urls)
	must(t, append([]string{"migrate", "up", fmt.Sprint("--partitions=", partitions)}, s.flags...)...)
	s.outbox = newOutbox(t, pgtest.Borrow(t))
	s.p = launch(t, nil, append([]string{"serve", "--listen=127.0.0.1:0"}, s.flags...)...)
	s.moves, s.stays, s.other = usersIn(0, 1)[0], usersIn(1, 1)[0], usersIn(partitions/2, 1)[0]
	return s
}

// relay starts a relay without waiting.
func (s *relayedStack) relay(t *testing.T) *process {
	t.Helper()
	return start(t, nil, append([]string{"relay", "--listen=127.0.0.1:0", "--outbox-url=" + s.outbox}, s.flags...)...)
}

// awaitTotal waits until a user has a total, also if the user's shard was unavailable.
func (s *relayedStack) awaitTotal(t *testing.T, user string, want int) {
	t.Helper()
	s.p.awaitAnswer(http.MethodGet, "/v1/users/"+user+"/badge", "", http.StatusOK, fmt.Sprintf(`"total":%d,`, want))
}

// A relay appends to several shards directly. It follows a partition that moves to another shard, and
// while one shard is unavailable it carries the events of users on the other.
func TestRelayToShards(t *testing.T) {
	t.Parallel()
	s := newRelayedStack(t)
	r := s.relay(t)
	r.awaitReady()
	backend := pgtest.Connect(t, s.outbox)
	seq, want := 0, map[string]int{}
	send := func(users ...string) {
		t.Helper()
		seq++
		publishIn(t, backend, delivered("c", seq, `"`+strings.Join(users, `","`)+`"`))
		for _, user := range users {
			want[user]++
		}
	}
	arrived := func(users ...string) {
		t.Helper()
		for _, user := range users {
			s.awaitTotal(t, user, want[user])
		}
	}
	send(s.moves, s.stays, s.other)
	arrived(s.moves, s.stays, s.other)
	must(t, append([]string{"partition", "move", "0", "--to=b"}, s.flags...)...)
	send(s.moves, s.stays)
	arrived(s.moves, s.stays)

	s.servers[1].Kill()
	send(s.other)
	send(s.stays, s.other)
	send(s.moves)
	send(s.stays)
	arrived(s.stays)
	r.awaitAnswer(http.MethodGet, "/readyz", "", http.StatusOK, `"relay":"events of some users wait in the outbox: `)
	if out := must(t, "relay", "status", "--outbox-url="+s.outbox); !strings.HasPrefix(out, "3 events wait, the oldest for ") {
		t.Errorf("status:\n%s", out)
	}
	restart(t, s.servers[1])
	arrived(s.other, s.moves)
	send(s.moves, s.stays, s.other)
	arrived(s.moves, s.stays, s.other)
	r.mustStop()
	if n := valueIn[int](t, backend, `SELECT count(*)::int FROM badged.outbox`); n > 0 {
		t.Errorf("%d events are left", n)
	}
	fails(t, 2, "are two targets; give one", append([]string{"relay", "--listen=127.0.0.1:0", "--outbox-url=" + s.outbox, "--url=" + s.p.url, "--publisher-key=k"}, s.flags...)...)
	fails(t, 1, "add --shard b=URL", "relay", "--listen=127.0.0.1:0", "--outbox-url="+s.outbox, s.flags[0])
}

// The relay, and each shard in turn, are killed while the backend publishes to users of both shards.
// Every event whose transaction was committed counts once.
func TestRelayToShardsOverKills(t *testing.T) {
	t.Parallel()
	s := newRelayedStack(t)
	r := s.relay(t)
	r.awaitReady()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	published := make(chan map[string]int, 1)
	go func() { published <- publishToUsers(ctx, s.outbox, s.stays, s.other) }()
	// The identity column of the outbox shows how many events were published, and its rows
	// are the events that still wait.
	backend := pgtest.Connect(t, s.outbox)
	carried := func() int {
		return valueIn[int](t, backend, `SELECT (SELECT last_value FROM badged.outbox_offset_seq)::int - (SELECT count(*) FROM badged.outbox)::int`)
	}
	for kill := range *relayKills {
		before := carried()
		await(t, "progress after a kill", func() bool { return carried() > before+100 })
		r.kill()
		if kill%2 == 1 {
			server := s.servers[kill/2%2]
			server.Kill()
			r = s.relay(t) // starts while the shard is unavailable
			restart(t, server)
			continue
		}
		r = s.relay(t)
	}
	stop()
	want := <-published
	await(t, "an empty outbox", func() bool {
		return valueIn[int](t, backend, `SELECT count(*)::int FROM badged.outbox`) == 0
	})
	s.awaitTotal(t, s.stays, want[s.stays])
	s.awaitTotal(t, s.other, want[s.other])
	if refused := valueIn[int](t, backend, `SELECT count(*)::int FROM badged.outbox_refused`); refused > 0 {
		t.Errorf("%d events were refused", refused)
	}
	must(t, append([]string{"verify", "--quiet"}, s.flags...)...)
}

// publishToUsers publishes messages to user a, to user b and to both until ctx is done, and returns
// how many messages each user was sent.
func publishToUsers(ctx context.Context, url, a, b string) map[string]int {
	background := context.WithoutCancel(ctx)
	conn, err := pgx.Connect(background, url)
	if err != nil {
		return nil
	}
	defer conn.Close(background)
	sent := map[string]int{}
	for n := 1; ctx.Err() == nil; n++ {
		users := [][]string{{a}, {b}, {a, b}}[n%3]
		if _, err := conn.Exec(background, `SELECT badged.publish($1)`, delivered("c", n, `"`+strings.Join(users, `","`)+`"`)); err != nil {
			return nil
		}
		for _, user := range users {
			sent[user]++
		}
	}
	return sent
}
