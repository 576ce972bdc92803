package tests

import (
	"fmt"
	"net/http"
	"testing"
)

// losesTail publishes two messages for ann that survive a failover and three that are lost in it. It
// calls told with the expected total after each part, and then fails over. No other event follows.
func losesTail(t *testing.T, pg *pair, p *process, told func(total int64)) {
	t.Helper()
	for seq := 1; seq <= 2; seq++ {
		insist(t, p, delivered("c", seq, `"ann"`))
	}
	told(2)
	pg.part()
	for seq := 3; seq <= 5; seq++ {
		insist(t, p, delivered("c", seq, `"ann"`))
	}
	told(5)
	pg.failOver()
	if status, answer := readAt(t, p, "0"); status != http.StatusOK {
		t.Fatalf("read: %d %s", status, answer)
	}
	told(2)
}

// Apps that are closed and show a lost number get a push with the number of the tables.
func TestPushesOfALostTail(t *testing.T) {
	t.Parallel()
	pg := startPair(t)
	f := newClosedPhones(t)
	p := f.serve(t, pg.hosts())
	f.register(t, p, "ann")
	losesTail(t, pg, p, func(total int64) {
		for range polls(t, fmt.Sprintf("all phones to show %d", total)) {
			right := 0
			for _, phone := range f.phones {
				if n, ok := phone.Number(); ok && n == total {
					right++
				}
			}
			if right == len(f.phones) {
				return
			}
		}
	})
	f.check(t, p)
}

// Webhooks that were called with a lost number are called with the number of the tables.
func TestWebhooksOfALostTail(t *testing.T) {
	t.Parallel()
	pg := startPair(t)
	e := newEndpoint(t)
	p := hookServer(t, pg.hosts(), e)
	operator(t, p, http.MethodPut, "crm", hookSettings(e, `"badge.changed"`), http.StatusCreated)
	losesTail(t, pg, p, func(total int64) {
		for c := e.next(t); c.event.Subject != "ann" || c.event.Data.Total != total; {
			c = e.next(t)
		}
	})
}

// Events that were read from a broker and lost in a failover are read again, even if no new event
// comes.
func TestBrokersOfALostTail(t *testing.T) {
	t.Parallel()
	pg := startPair(t)
	server := newRedis(t)
	client := newRedisClient(t, server)
	p := serve(t, pg.hosts(), "--roles=api,projector,gateway,ingest", "--from="+server.URL()+"?stream=chat")
	add := func(first, last int) {
		t.Helper()
		for seq := first; seq <= last; seq++ {
			addTo(t, client, "chat", delivered("c", seq, `"ann"`))
		}
	}
	ann := connect(t, p.url, "ann")
	ann.mayRewind()
	add(1, 2)
	ann.awaitTotal(2)
	pg.part()
	add(3, 5)
	ann.awaitTotal(5)
	pg.failOver()
	until(t, pg.standby.URL(), `SELECT count(*) = 1 AND sum(total) = 5 FROM badged.badges WHERE user_id = 'ann'`)
	ann.awaitTotal(5)
	must(t, "verify", "--database-url="+pg.standby.URL())
}
