package tests

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
)

// A server whose clock is wrong, and jumps, decides nothing that lasts by it: the times of the
// log and revocations are the database's, and endpoints accept the signatures of calls.
func TestServerWithAWrongClock(t *testing.T) {
	t.Parallel()
	database, e, clock := oneDatabase(t), newEndpoint(t), newServerClock(t)
	clock.is(-time.Hour) // it starts so
	trust := trusting(t, e)
	p := launch(t, func(cmd *exec.Cmd) {
		trust(cmd)
		clock.on(cmd)
		cmd.Env = append(cmd.Env, "BADGED_ADMIN_KEYS=ops="+adminKey)
	}, "serve", "--listen=127.0.0.1:0", "--database-url="+database, "--webhooks-allow-private")
	conn := connectTo(t, database)
	operator(t, p, http.MethodPut, "crm", hookSettings(e, `"badge.changed"`), http.StatusCreated)
	for i, ahead := range []time.Duration{-time.Hour, time.Hour, -30 * 24 * time.Hour, 30 * 24 * time.Hour, 0} {
		clock.is(ahead)
		publish(t, p, delivered("lunch", i+1, `"ada"`))
		if c := e.next(t); c.event.Data.Total != int64(i+1) {
			t.Errorf("with a clock %s ahead the call has the total %d, want %d", ahead, c.event.Data.Total, i+1)
		}
		var wrong int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM badged.`+events.Topic(events.PartitionOf("ada", partitions))+` WHERE abs(extract(epoch FROM clock_timestamp() - created_at)) > 600`).Scan(&wrong); err != nil {
			t.Fatal(err)
		}
		if wrong > 0 {
			t.Errorf("with a clock %s ahead %d rows of the log have a wrong time", ahead, wrong)
		}
		status, _, answer := request(t, http.MethodPost, p.url+"/v1/users/eve/disconnect", "application/json", `{"revoke":true}`)
		if status != http.StatusAccepted {
			t.Fatalf("disconnect: %d %s", status, answer)
		}
		var off float64
		if err := conn.QueryRow(t.Context(), `SELECT max(abs(extract(epoch FROM clock_timestamp() - revoked_before))) FROM badged.revocations`).Scan(&off); err != nil {
			t.Fatal(err)
		}
		if off > 600 {
			t.Errorf("with a clock %s ahead a revocation is %.0f seconds off", ahead, off)
		}
		for range polls(t, "readiness to compare the clocks") {
			_, _, answer := requestAs(t, "", http.MethodGet, p.url+"/readyz", "", "")
			if strings.Contains(answer, `"clocks":"ok"`) == (ahead == 0) {
				break
			}
		}
	}
}
