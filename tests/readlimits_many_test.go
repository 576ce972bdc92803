package tests

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// slowPartitions are partitions whose conversations cannot be read until release. Meanwhile the
// devices of all partitions cannot be read either.
type slowPartitions struct {
	t        *testing.T
	database string
	lock     pgx.Tx
}

// hangsOnLocks makes reads wait long for locks: with the default they would soon be refused.
const hangsOnLocks = "--lock-timeout=10m"

// lockPartitions makes reads of partitions hang.
func lockPartitions(t *testing.T, database string, partitions ...int) *slowPartitions {
	t.Helper()
	conn := pgtest.Connect(t, database)
	lock, err := conn.Begin(t.Context())
	for _, partition := range partitions {
		if err == nil {
			_, err = lock.Exec(t.Context(), fmt.Sprintf(`LOCK TABLE badged.conversations_p%02d, badged.devices IN ACCESS EXCLUSIVE MODE`, partition))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return &slowPartitions{t, database, lock}
}

// hangingSQL is how many queries of requests hang.
const hangingSQL = `SELECT count(*)::int FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'badged serving' AND wait_event_type = 'Lock'`

func (s *slowPartitions) hanging() int { return value[int](s.t, s.database, hangingSQL) }

// awaitHanging waits until that many queries of requests hang, or more.
func (s *slowPartitions) awaitHanging(n int) {
	s.t.Helper()
	until(s.t, s.database, `SELECT (`+hangingSQL+`) >= $1`, n)
}

func (s *slowPartitions) release() {
	s.t.Helper()
	if err := s.lock.Rollback(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// nextStatus returns the status of the next answer.
func nextStatus(t *testing.T, answers <-chan int) int {
	t.Helper()
	select {
	case status := <-answers:
		return status
	case <-time.After(patience):
		t.Fatal("there is no answer")
		return 0
	}
}

// usersIn returns users of a partition.
func usersIn(partition, n int) (users []string) {
	for i := 0; len(users) < n; i++ {
		if user := fmt.Sprint("user", i); events.PartitionOf(user, partitions) == partition {
			users = append(users, user)
		}
	}
	return users
}

// Many users who read from many addresses, and backends with keys, together use only a part of the
// connections to Postgres. However long their reads take, readiness, revocations, publishing, folding
// and first snapshots of other users continue.
func TestManyReadersTogetherAreLimited(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	p := serve(t, withPools(database, 16), "--trusted-proxies=127.0.0.0/8", hangsOnLocks)
	// Reads of one partition have their own limit. Neither the reads with tokens nor the
	// reads with keys reach it here.
	const slow, slowToo, users, each = 3, 5, 100, 4
	const ofTokens, ofDevices, ofKeys = 3, 2, 3
	other := usersIn(slow+1, 2)
	total(t, p, other[0], publish(t, p, delivered("tea", 1, fmt.Sprintf("%q", other[0]))))
	connected := connect(t, p.url, other[0])
	connected.awaitTotal(1)

	lock := lockPartitions(t, database, slow, slowToo)
	kinds := []string{"conversations", "devices"}
	answers := make(chan int, users*each*len(kinds))
	var reading sync.WaitGroup
	for i, user := range usersIn(slow, users) {
		jwt := token(t, user)
		for _, kind := range kinds {
			r := describedRoute{method: http.MethodGet, path: "/v1/users/" + user + "/" + kind}
			for range each {
				reading.Go(func() {
					status, _ := r.statusOf(t, p.url, jwt, fmt.Sprintf("10.1.0.%d", i), "", "")
					answers <- status
				})
			}
		}
	}
	for range cap(answers) - ofTokens - ofDevices {
		if status := nextStatus(t, answers); status != http.StatusTooManyRequests {
			t.Fatalf("a read that waits is answered %d", status)
		}
	}
	wantTotal(t, p, other[0], "0", 1)
	keys := make(chan int, 50)
	for range cap(keys) {
		reading.Go(func() {
			status, _, _ := request(t, http.MethodGet, p.url+"/v1/users/"+usersIn(slowToo, 1)[0]+"/conversations", "", "")
			keys <- status
		})
	}
	const all = ofTokens + ofDevices + ofKeys
	lock.awaitHanging(all)

	wantStatus(t, publisherKey, http.MethodGet, p.url+"/readyz", "", "", http.StatusOK)
	publish(t, p, delivered("tea", 2, fmt.Sprintf("%q,%q", other[0], other[1])))
	connected.awaitTotal(2)
	connect(t, p.url, other[1]).awaitTotal(1)
	disconnect(t, p, other[0], `{"revoke":true}`)
	connected.awaitEnd()
	if n := lock.hanging(); n != all {
		t.Errorf("%d reads hang, want %d", n, all)
	}

	lock.release()
	reading.Wait()
	for range ofTokens + ofDevices {
		if status := nextStatus(t, answers); status != http.StatusOK {
			t.Errorf("a read with a token that had a place is answered %d", status)
		}
	}
	for range cap(keys) {
		if status := nextStatus(t, keys); status != http.StatusOK {
			t.Errorf("a read with a key is answered %d", status)
		}
	}
}

// The sockets of one user cannot use all the queries. Sockets with tokens that are restricted to
// categories read the tables individually, and so do commands, so their number is limited.
func TestSocketsOfAUserLeaveQueriesToOthers(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	p := serve(t, database, hangsOnLocks)
	const slow = 3
	greedy, other := usersIn(slow, 1)[0], usersIn(slow+1, 1)[0]
	total(t, p, other, publish(t, p, delivered("tea", 1, fmt.Sprintf("%q,%q", greedy, other))))
	now := time.Now()
	some := map[string]any{"badged_categories": []string{"chat"}}

	lock := lockPartitions(t, database, slow)
	var asking sync.WaitGroup
	for range 20 {
		connectWith(t, p.url, issuedWith(t, greedy, now, some))
		asking.Go(func() { p.command(greedy, `{"t":"mark_unread","conversation_id":"tea"}`) })
	}
	lock.awaitHanging(1)
	connectWith(t, p.url, issuedWith(t, other, now, some)).awaitTotal(1)
	p.mustCommand(other, `{"t":"mark_unread","conversation_id":"tea"}`)
	if n := lock.hanging(); n > 1 {
		t.Errorf("%d queries of one user hang", n)
	}
	lock.release()
	asking.Wait()
}
