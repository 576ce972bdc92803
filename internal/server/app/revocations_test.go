package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// lockTable keeps a server from a table until release is called.
func lockTable(t *testing.T, url, table string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, conn, `BEGIN; LOCK TABLE badged.`+table+` IN ACCESS EXCLUSIVE MODE`)
	return func() {
		t.Helper()
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// badgeAs asks for a user's badge with a token.
func (s *server) badgeAs(t *testing.T, userID, token string) answer {
	t.Helper()
	return s.ask(t, token, http.MethodGet, "/v1/users/"+userID+"/badge", "", "")
}

// greeting returns the first frame of a connection with a token.
func (s *server) greeting(t *testing.T, token string) string {
	t.Helper()
	conn, status, err := upgrade(t, s, http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		t.Fatalf("dial: %d, %v", status, err)
	}
	defer conn.Close()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(`{"t":"hello"}`)); err != nil {
		t.Fatal(err)
	}
	_, first, err := conn.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	return string(first)
}

// A server starts and serves while it cannot read which tokens are revoked. Until it has read
// all, it is not ready and admits no token: clients are asked to come back.
func TestRevocationsThatAreNotReadYet(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	release := lockTable(t, url, "erased_revocations")
	s := run(t, open(t, settings(url)))
	s.impatient = true
	position := s.publish(t, message("lunch", 1, "ada"))
	if a := s.get(t, "/v1/users/ada/badge?at_least="+position); a.status != http.StatusOK {
		t.Errorf("a key reads a badge: %d %s", a.status, a.body)
	}
	if a := s.get(t, "/readyz"); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, `"revocations":"the revoked tokens were not read yet"`) {
		t.Errorf("readiness: %d %s", a.status, a.body)
	}
	token := s.token(t, "ada")
	if a := s.badgeAs(t, "ada", token); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, "the revoked tokens were not read yet") {
		t.Errorf("a token reads a badge: %d %s", a.status, a.body)
	}
	eventually(t, "the gateway is open", func() bool { return strings.Contains(s.get(t, "/readyz").body, `"gateway":"ok"`) })
	if first := s.greeting(t, token); !strings.Contains(first, `"t":"bye"`) || !strings.Contains(first, "4203") {
		t.Errorf("a connection gets %s", first)
	}
	release()
	s.awaitReady(t)
	if a := s.badgeAs(t, "ada", token); a.status != http.StatusOK {
		t.Errorf("once they are read, a token reads a badge: %d %s", a.status, a.body)
	}
	if first := s.greeting(t, token); !strings.Contains(first, `"t":"snapshot"`) {
		t.Errorf("once they are read, a connection gets %s", first)
	}
}

// While a process cannot read what is revoked, a request that revokes tokens is not answered as
// one that is in force. What it stored is in force once the process can read.
func TestRevocationsThatCannotBeRead(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	s := run(t, open(t, settings(url)))
	s.awaitReady(t)
	issued := time.Now().Add(-time.Minute)
	tokens := map[string]string{"ann": s.tokenOf(t, "ann", issued), "bob": s.tokenOf(t, "bob", issued)}
	release := lockTable(t, url, "erased_revocations")
	s.impatient = true
	a := s.disconnect(t, "ann")
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "stored but not in force yet") {
		t.Errorf("a request that is stored and cannot be read: %d %s", a.status, a.body)
	}
	release()
	eventually(t, "the token is refused", func() bool { return s.badgeAs(t, "ann", tokens["ann"]).status == http.StatusUnauthorized })

	release = lockTable(t, url, "revocations")
	if a := s.disconnect(t, "bob"); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("a request that cannot be stored: %d %s", a.status, a.body)
	}
	if a := s.badgeAs(t, "bob", tokens["bob"]); a.status != http.StatusOK {
		t.Errorf("a token that is not revoked: %d %s", a.status, a.body)
	}
	release()
	eventually(t, "a request is stored again", func() bool { return s.disconnect(t, "bob").status == http.StatusAccepted })
	if a := s.badgeAs(t, "bob", tokens["bob"]); a.status != http.StatusUnauthorized {
		t.Errorf("a revoked token, right after the answer: %d %s", a.status, a.body)
	}
}
