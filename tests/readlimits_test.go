package tests

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Apps whose reads hang or are too many get 429, each user and each address by itself, and
// take nothing from readiness, revocations, and reads with keys.
func TestReadsOfAppsAreLimited(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t) // each has connections of its own
	p := serve(t, database, hangsOnLocks)
	position := publish(t, p, delivered("tea", 1, `"ada","ben"`))
	if n := total(t, p, "ben", position); n != 1 {
		t.Fatalf("the total is %d", n)
	}
	connected := connect(t, p.url, "ben")
	connected.awaitTotal(1)

	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE badged.conversations IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}

	// Of the address 2 requests hang; the others come back.
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
	if status, _, answer := request(t, http.MethodGet, p.url+"/readyz", "", ""); status != http.StatusOK {
		t.Errorf("readiness is %d %s", status, answer)
	}
	if n := total(t, p, "ben", position); n != 1 {
		t.Errorf("the total is %d", n)
	}
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

// A user's reads have a rate, and those of an address one of ten times that. Those of
// backends have none.
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
			break // the address has had its own
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
