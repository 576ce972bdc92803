package tests

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// limited returns the URL for a new role that may have that many connections to a database.
func limited(t *testing.T, database string, connections int) string {
	t.Helper()
	sql(t, database, fmt.Sprintf(`CREATE ROLE few LOGIN CONNECTION LIMIT %d`, connections))
	must(t, "migrate", "grant", "server", "few", "--database-url="+database)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("user", "few")
	u.RawQuery = query.Encode()
	return u.String()
}

// If a role may have fewer connections than folding needs, the server refuses to start, since it
// would accept events and never fold them. `config check` reports the same.
func TestFieldCaseTooFewConnections(t *testing.T) {
	t.Parallel()
	database := pgtest.Borrow(t).NewDB(t, migrated())
	few := limited(t, database, 8)
	const want = "the role few permits 8 connections, "
	if said, code := checkConnect(t, "--database-url="+few); code != 1 || !strings.Contains(said, "failure  "+want) || !strings.Contains(said, "ALTER ROLE few CONNECTION LIMIT") {
		t.Errorf("config check exits with %d and prints\n%s", code, said)
	}
	if _, said, code := command(t, "serve", "--listen=127.0.0.1:0", "--publisher-keys=a="+publisherKey, "--jwt-keys="+jwtKeys, "--database-url="+few); code != 1 || !strings.Contains(said, want) || !strings.Contains(said, " at least: raise the limit (ALTER ROLE few CONNECTION LIMIT") {
		t.Errorf("serve exits with %d and says\n%s", code, said)
	}
	sql(t, database, `ALTER ROLE few CONNECTION LIMIT 0`)
	fails(t, 1, "ALTER ROLE … CONNECTION LIMIT", "verify", "--database-url="+few)

	// With a few more connections it works within the limit, also with many concurrent reads.
	sql(t, database, `ALTER ROLE few CONNECTION LIMIT 16`)
	if said, code := checkConnect(t, "--database-url="+few); code != 0 || !strings.Contains(said, "warning  the role few permits 16 connections, ") {
		t.Errorf("config check exits with %d and prints\n%s", code, said)
	}
	p := launch(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+few)
	p.awaitSays("its pools are smaller")
	stop := make(chan struct{})
	done := make(chan string, 32)
	for range cap(done) {
		go func() {
			for {
				select {
				case <-stop:
					done <- ""
					return
				default:
				}
				if status, _, answer := request(t, http.MethodGet, p.url+"/v1/users/ann/badge", "", ""); status != http.StatusOK {
					done <- fmt.Sprintf("%d %s", status, answer)
					return
				}
			}
		}()
	}
	for n := 1; n <= 50; n++ {
		position := publish(t, p, delivered("lunch", n, `"ann"`))
		wantTotal(t, p, "ann", position, int64(n))
	}
	close(stop)
	for range cap(done) {
		if answer := <-done; answer != "" {
			t.Errorf("reading: %s", answer)
		}
	}
}

// If no process folds, every process reports it in its readiness, and still serves reads.
func TestReadinessKnowsWhetherFoldingGoesOn(t *testing.T) {
	t.Parallel()
	database := pgtest.Borrow(t).NewDB(t, migrated())
	redis := newRedis(t).URL()
	start := func(roles string) *process {
		t.Helper()
		return serve(t, database, "--roles="+roles, "--redis-url="+redis)
	}
	api, folding := start("api,gateway"), start("projector")
	folding.awaitSays("owning partitions")
	publish(t, api, delivered("lunch", 1, `"ann"`))
	folding.kill()
	api.awaitAnswer(http.MethodGet, "/readyz", "", http.StatusOK, `"folding":"no projector folds partitions 0, 1, 2, 3, `)
	start("projector").awaitSays("owning partitions")
	api.awaitAnswer(http.MethodGet, "/readyz", "", http.StatusOK, `"folding":"ok"`)
}
