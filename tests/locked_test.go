package tests

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// usersOf returns n users of a partition, and n users of other partitions.
func usersOf(partition, n int) (these, others []string) {
	for i := 0; len(these) < n || len(others) < n; i++ {
		user := fmt.Sprintf("user-%d", i)
		if events.PartitionOf(user, partitions) == partition {
			these = append(these, user)
		} else {
			others = append(others, user)
		}
	}
	return these[:n], others[:n]
}

// While another session locks the tables of a partition, reads of its users and publishing to it
// fail with 503, and the answer says what waited. Users of other partitions are not affected: they
// read, publish and connect, and their tokens can be revoked. Events that are published again count
// once.
func TestFieldCaseLockedPartition(t *testing.T) {
	t.Parallel()
	database := pgtest.Borrow(t).NewDB(t, migrated())
	p := serve(t, withPools(database, 16))
	const locked = 3
	these, others := usersOf(locked, 24)
	publish(t, p, delivered("lunch", 1, `"`+strings.Join(append(these, others...), `","`)+`"`))
	for _, user := range []string{these[0], others[0]} {
		connect(t, p.url, user).awaitTotal(1)
	}

	holder := pgtest.Connect(t, database)
	for _, statement := range []string{`BEGIN`, fmt.Sprintf(`LOCK TABLE badged.users_p%02d, badged.conversations_p%02[1]d, badged.%s IN ACCESS EXCLUSIVE MODE`, locked, events.Topic(locked))} {
		pgtest.Exec(t, holder, statement)
	}
	release := sync.OnceFunc(func() { _, _ = holder.Exec(context.WithoutCancel(t.Context()), `ROLLBACK`) })
	t.Cleanup(release)

	var waiting sync.WaitGroup
	answers := make([]string, len(these))
	for i, user := range these {
		waiting.Go(func() {
			status, header, answer := answerOf(t, http.MethodGet, p.url+"/v1/users/"+user+"/badge", "", "")
			answers[i] = fmt.Sprintf("%d %s %s", status, header.Get("Retry-After"), answer)
		})
	}
	tried := make(chan string, 1)
	waiting.Go(func() {
		status, header, answer := answerOf(t, http.MethodPost, p.url+"/v1/events", "application/cloudevents+json", delivered("lunch", 2, `"`+these[1]+`"`))
		tried <- fmt.Sprintf("%d %s %s", status, header.Get("Retry-After"), answer)
	})

	// Users of other partitions: all requests succeed while the lock is held.
	for i, user := range others {
		status, _, answer := answerOf(t, http.MethodGet, p.url+"/v1/users/"+user+"/badge", "", "")
		if status != http.StatusOK || !strings.Contains(answer, `"total":1`) {
			t.Fatalf("reading %s: %d %s", user, status, answer)
		}
		status, _, answer = answerOf(t, http.MethodPost, p.url+"/v1/events", "application/cloudevents+json", delivered("dinner", i+1, `"`+user+`"`))
		if status != http.StatusAccepted {
			t.Fatalf("publishing for %s: %d %s", user, status, answer)
		}
	}
	connect(t, p.url, others[1]).awaitTotal(2)
	if status, _, answer := answerOf(t, http.MethodGet, p.url+"/readyz", "", ""); status != http.StatusOK {
		t.Errorf("readyz: %d %s", status, answer)
	}
	if status, _, answer := answerOf(t, http.MethodPost, p.url+"/v1/users/"+others[2]+"/disconnect", "application/json", `{"revoke":true}`); status != http.StatusAccepted {
		t.Errorf("revoking: %d %s", status, answer)
	}
	status, _, answer := answerOf(t, http.MethodPost, p.url+"/v1/badges/query", "application/json", fmt.Sprintf(`{"user_ids":[%q,%q]}`, these[0], others[3]))
	if status != http.StatusServiceUnavailable || !strings.Contains(answer, "partition 3") || !strings.Contains(answer, `"user_ids":["`+these[0]+`"]`) || !strings.Contains(answer, `"user_id":"`+others[3]+`"`) {
		t.Errorf("a query for both: %d %s", status, answer)
	}

	// The blocked requests end although the lock is still held.
	waiting.Wait()
	for i, answer := range answers {
		if !strings.HasPrefix(answer, "503 2 ") || !strings.Contains(answer, "the tables of partition 3 are locked") {
			t.Errorf("reading %s: %s", these[i], answer)
		}
	}
	if answer := <-tried; !strings.HasPrefix(answer, "503 2 ") || !strings.Contains(answer, "the tables of partition 3 are locked") || !strings.Contains(answer, "nothing was stored") {
		t.Errorf("publishing: %s", answer)
	}
	if n := metric(t, metricsOf(t, p), "badged_auth_revocation_read_errors_total"); n != 0 {
		t.Errorf("%v reads of what is revoked failed", n)
	}

	release()
	for range 2 {
		position := publish(t, p, delivered("lunch", 2, `"`+these[1]+`"`))
		wantTotal(t, p, these[1], position, 2)
	}
	must(t, "verify", "--quiet", "--database-url="+database)
}

// answerOf sends a request once, and fails the test if the server does not answer in time.
func answerOf(t *testing.T, method, url, contentType, body string) (status int, header http.Header, answer string) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		status, header, answer = requestOnce(t, publisherKey, method, url, contentType, body)
	}()
	select {
	case <-done:
		return status, header, answer
	case <-time.After(20 * time.Second):
		return 0, http.Header{}, "no answer in 20 s"
	}
}
