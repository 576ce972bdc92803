package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// The endpoint of a webhook was unavailable while partitions moved and were split. Afterwards the
// webhook is called for every user whose badge changed before, between and after the moves.
func TestWebhookThatIsBehindFollowsMovesAndSplits(t *testing.T) {
	t.Parallel()
	database := stack(pgtest.NewDBs(t, sharded(2)))
	e := newEndpoint(t)
	p := hookServer(t, database, e)
	operator(t, p, http.MethodPut, "crm", hookSettings(e, `"badge.changed"`), http.StatusCreated)
	e.set(func(int) int { return http.StatusServiceUnavailable })
	c := newCrowd(t, p)
	number, _ := c.partitionOfA(database)
	missing := map[string]bool{}
	change := func(some []string) {
		t.Helper()
		for _, u := range some {
			missing[u] = true
		}
		total(t, p, some[0], publish(t, p, delivered("lunch "+some[0], 1, `"`+strings.Join(some, `","`)+`"`)))
	}
	third := len(c.users) / 3
	change(c.users[:third])
	must(t, "partition", "move", fmt.Sprint(number), "--to=b", "--quiet", "--database-url="+database)
	change(c.users[third : 2*third])
	must(t, "partition", "split", fmt.Sprint(number), "--quiet", "--database-url="+database)
	change(c.users[2*third:])
	for len(e.calls) > 0 { // drop the calls that failed
		<-e.calls
	}
	e.set(func(int) int { return http.StatusNoContent })
	operator(t, p, http.MethodPut, "crm", hookSettings(e, `"badge.changed"`), http.StatusOK)
	for len(missing) > 0 {
		call := e.next(t)
		if call.event.Data.Total != 1 {
			t.Errorf("%s is told as %d", call.event.Subject, call.event.Data.Total)
		}
		delete(missing, call.event.Subject)
	}
}
