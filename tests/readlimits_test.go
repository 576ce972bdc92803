package tests

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// If too many reads of apps hang, further reads get 429; there are limits for each user and each
// address. Readiness, revocations and reads with keys are not affected.
func TestReadsOfAppsAreLimited(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t) // with shards, each shard has its own connections
	p := serve(t, database, hangsOnLocks)
	position := publish(t, p, delivered("tea", 1, `"ada","ben"`))
	wantTotal(t, p, "ben", position, 1)
	connected := connect(t, p.url, "ben")
	connected.awaitTotal(1)

	conn := pgtest.Connect(t, database)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, tx, `LOCK TABLE badged.conversations IN ACCESS EXCLUSIVE MODE`)

	// Of one address 2 requests hang; the server answers the others.
	const users, each = 5, 12
	answers := make(chan int, users*each)
	var reading sync.WaitGroup
	for i := range users {
		jwt := token(t, fmt.Sprint("user", i))
		for range each {
			reading.Go(func() {
				status, header, answer := requestAs(t, jwt, http.MethodGet, fmt.Sprintf("%s/v1/users/user%d/conversations", p.url, i), "", "")
				if status == http.StatusTooManyRequests && (header.Get("Retry-After") == "" || !strings.Contains(answer, "urn:badged:problem")) {
					t.Errorf("it is refused with %v %s", header, answer)
				}
				answers <- status
			})
		}
	}
	for range users*each - 2 {
		if status := nextStatus(t, answers); status != http.StatusTooManyRequests {
			t.Fatalf("a read that waits is answered %d", status)
		}
	}
	wantStatus(t, publisherKey, http.MethodGet, p.url+"/readyz", "", "", http.StatusOK)
	wantTotal(t, p, "ben", position, 1)
	if status, _, answer := request(t, http.MethodPost, p.url+"/v1/users/ben/disconnect", "application/json", `{}`); status >= 300 {
		t.Fatalf("disconnect: %d %s", status, answer)
	}
	connected.awaitEnd()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	for range 2 {
		if status := nextStatus(t, answers); status != http.StatusOK {
			t.Errorf("a read that had a place is answered %d", status)
		}
	}
}

// Reads of a user are limited by a rate, and reads of an address by ten times that rate. Reads of
// backends have no rate limit.
func TestReadsOfAppsHaveARate(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t), "--reads-per-second=0.05")
	read := func(secret, user string) int {
		status, _, _ := requestAs(t, secret, http.MethodGet, p.url+"/v1/users/"+user+"/badge", "", "")
		return status
	}
	ada := token(t, "ada")
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if status := read(ada, "ada"); status != want {
			t.Errorf("read %d is answered %d", i, status)
		}
	}
	for i := 0; ; i++ {
		user := fmt.Sprint("user", i)
		status := read(token(t, user), user)
		if status == http.StatusTooManyRequests && i > 0 {
			break // the address has reached its limit
		}
		if status != http.StatusOK || i == 100 {
			t.Fatalf("user %d of the address is answered %d", i, status)
		}
	}
	for range 5 {
		if status := read(publisherKey, "ada"); status != http.StatusOK {
			t.Errorf("a backend is answered %d", status)
		}
	}
}
