package tests

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
)

var revocations = flag.Int("revocations", 20_000, "how many users with revoked tokens TestManyRevocations has")

// A server starts however many users have revoked tokens, and admits tokens once it has read all
// revocations. A lock on the table of revocations blocks no later reads, and the server does not
// answer a revocation as if it were not in force.
func TestManyRevocations(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	conn := pgtest.Connect(t, database)
	for _, statement := range []string{
		fmt.Sprintf(`INSERT INTO badged.revocations (seq, revoked_before, ended_at, user_id)
SELECT n, now(), now(), 'user-' || n FROM generate_series(1, %d) AS n`, *revocations),
		fmt.Sprintf(`UPDATE badged.revocation_counter SET last = %d`, *revocations),
		`ANALYZE badged.revocations`,
	} {
		pgtest.Exec(t, conn, statement)
	}
	first, last := "user-1", fmt.Sprintf("user-%d", *revocations)

	var started [2]time.Time
	var processes []*process
	for i := range started {
		started[i] = time.Now()
		processes = append(processes, serve(t, database))
		serves := time.Since(started[i])
		for range polls(t, "the server is ready") {
			status, _, answer := request(t, http.MethodGet, processes[i].url+"/readyz", "", "")
			if status == http.StatusOK {
				break
			}
			if !strings.Contains(answer, "still being read") { // the server is still starting
				continue
			}
			if badge, _, _ := requestAs(t, issued(t, "ann", time.Now()), http.MethodGet, processes[i].url+"/v1/users/ann/badge", "", ""); badge == http.StatusUnauthorized {
				t.Fatal("a token is refused with 401 while it is not known which ones are revoked")
			}
		}
		t.Logf("with %d revocations a process serves after %s, admits tokens after %s, and has taken %d MiB at most",
			*revocations, serves.Round(time.Millisecond), time.Since(started[i]).Round(time.Millisecond), processes[i].mostMemory()>>20)
	}
	// read returns the status for a token that was issued before the revocations.
	read := func(p *process, user string) int {
		status, _, _ := requestAs(t, issued(t, user, time.Now().Add(-time.Hour)), http.MethodGet, p.url+"/v1/users/"+user+"/badge", "", "")
		return status
	}
	for i, p := range processes {
		if n := metric(t, metricsOf(t, p), "badged_auth_revoked_users"); n != float64(*revocations) {
			t.Errorf("process %d knows %v users with revoked tokens, want %d", i, n, *revocations)
		}
		for user, want := range map[string]int{first: http.StatusUnauthorized, last: http.StatusUnauthorized, "ann": http.StatusOK} {
			if status := read(p, user); status != want {
				t.Errorf("process %d answers a token of %s with %d, want %d", i, user, status, want)
			}
		}
	}

	lock := pgtest.Connect(t, database)
	pgtest.Exec(t, lock, `BEGIN; LOCK TABLE badged.revocations IN ACCESS EXCLUSIVE MODE`)
	release := sync.OnceFunc(func() { _, _ = lock.Exec(context.WithoutCancel(t.Context()), `ROLLBACK`) })
	t.Cleanup(release)
	for _, p := range processes { // takes some seconds
		await(t, "reads of what is revoked fail", func() bool {
			return metric(t, metricsOf(t, p), "badged_auth_revocation_read_errors_total") >= 2
		})
	}
	status, header, answer := answerOf(t, http.MethodPost, processes[0].url+"/v1/users/ann/disconnect", "application/json", `{"revoke":true}`)
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("revoking while the table is locked: %d %s", status, answer)
	}
	release()
	wantStatus(t, publisherKey, http.MethodPost, processes[0].url+"/v1/users/ann/disconnect", "application/json", `{"revoke":true}`, http.StatusAccepted)
	if status := read(processes[0], "ann"); status != http.StatusUnauthorized {
		t.Errorf("the process that answered admits a revoked token: %d", status)
	}
	await(t, "the other process refuses the token", func() bool {
		return read(processes[1], "ann") == http.StatusUnauthorized
	})
}
