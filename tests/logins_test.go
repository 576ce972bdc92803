package tests

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// guarded returns a migrated database whose role badged_server logs in with a password.
func guarded(t *testing.T, password string) (database string) {
	t.Helper()
	database = granted(t)
	sql(t, database, `ALTER ROLE badged_server PASSWORD '`+password+`'`)
	admit(t, database, "local all badged_server scram-sha-256")
	return database
}

// admit inserts a line at the start of pg_hba.conf, and waits until Postgres uses it.
func admit(t *testing.T, database, line string) {
	t.Helper()
	file := rowsOf(t, database, `SHOW hba_file`)[0]
	writeFile(t, file, line+"\nlocal all all trust\n")
	sql(t, database, `SELECT pg_reload_conf()`)
	for range polls(t, "the new pg_hba.conf") {
		conn, err := pgx.Connect(t.Context(), as(t, database, "badged_server"))
		if err == nil {
			_ = conn.Close(t.Context())
		}
		if (err == nil) == (line == "") {
			return
		}
	}
}

// awaitAnswer repeats a request until its answer has a status and a text.
func (p *process) awaitAnswer(method, path, body string, status int, text string) (header http.Header, answer string) {
	p.t.Helper()
	for range polls(p.t, fmt.Sprintf("%s %s: %d %s", method, path, status, text)) {
		var got int
		got, header, answer = requestOnce(p.t, publisherKey, method, p.url+path, "application/json", body)
		if got == status && strings.Contains(answer, text) {
			break
		}
	}
	return header, answer
}

// Postgres refuses the logins of a running server, for each possible reason. Publishers and readers
// get the reason and when to retry, readiness reports it, and the server recovers without a restart.
func TestRefusedLogins(t *testing.T) {
	t.Parallel()
	database := guarded(t, "hunter2")
	name := rowsOf(t, database, `SELECT current_database()`)[0]
	p := launch(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+as(t, database, "badged_server")+"&password=hunter2")
	seq := 1
	total(t, p, "ann", publish(t, p, delivered("c", seq, `"ann"`)))
	const password, login = "refuses the password of badged", "does not let badged log in"
	for _, tc := range []struct{ name, refuse, admit, why string }{
		{"changed password", `ALTER ROLE badged_server PASSWORD 'other'`, `ALTER ROLE badged_server PASSWORD 'hunter2'`, password},
		{"expired password", `ALTER ROLE badged_server VALID UNTIL '2020-01-01'`, `ALTER ROLE badged_server VALID UNTIL 'infinity'`, password},
		{"NOLOGIN", `ALTER ROLE badged_server NOLOGIN`, `ALTER ROLE badged_server LOGIN`, login},
		{"CONNECT revoked", `REVOKE CONNECT ON DATABASE ` + name + ` FROM PUBLIC`, `GRANT CONNECT ON DATABASE ` + name + ` TO PUBLIC`, login},
		{"pg_hba.conf", `hba`, `hba`, login},
		{"no connection left", `ALTER ROLE badged_server CONNECTION LIMIT 0`, `ALTER ROLE badged_server CONNECTION LIMIT -1`, "has no connection left"},
	} {
		if tc.refuse == "hba" {
			admit(t, database, "local all badged_server reject")
		} else {
			sql(t, database, tc.refuse)
		}
		sql(t, database, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'badged_server'`)
		seq++
		header, answer := p.awaitAnswer(http.MethodPost, "/v1/events", delivered("c", seq, `"ann"`), http.StatusServiceUnavailable, tc.why)
		if header.Get("Retry-After") == "" || header.Get("Content-Type") != "application/problem+json" || strings.Contains(answer, "hunter2") || strings.Contains(answer, "SQLSTATE") {
			t.Errorf("%s: publishing: %v %s", tc.name, header, answer)
		}
		if header, answer := p.awaitAnswer(http.MethodGet, "/v1/users/ann/badge", "", http.StatusServiceUnavailable, tc.why); header.Get("Retry-After") == "" || strings.Contains(answer, "SQLSTATE") {
			t.Errorf("%s: reading: %v %s", tc.name, header, answer)
		}
		p.awaitAnswer(http.MethodGet, "/readyz", "", http.StatusServiceUnavailable, tc.why)
		if tc.admit == "hba" {
			guard := "local all badged_server scram-sha-256"
			admit(t, database, guard)
		} else {
			sql(t, database, tc.admit)
		}
		p.awaitAnswer(http.MethodPost, "/v1/events", delivered("c", seq, `"ann"`), http.StatusAccepted, "")
		p.awaitAnswer(http.MethodGet, "/readyz", "", http.StatusOK, "")
	}
	wantTotal(t, p, "ann", publish(t, p, delivered("c", seq+1, `"ann"`)), int64(seq)+1)
	if out := p.out.String(); strings.Contains(out, "hunter2") {
		t.Errorf("the log has the password:\n%s", out)
	}
	fails(t, 1, "The password is wrong or has expired.", "verify", "--database-url="+as(t, database, "badged_server")+"&password=wrong")
}

// The password of the role is changed first in Postgres and later in the server's password file.
func passwordRotated(t *testing.T) {
	database := guarded(t, "first")
	file, passfile := filepath.Join(t.TempDir(), "password"), filepath.Join(t.TempDir(), "pgpass")
	write := func(password string) {
		t.Helper()
		writeFile(t, file, password+"\n")
		writeFile(t, passfile, "*:*:*:badged_server:"+password+"\n")
	}
	write("first")
	url := as(t, database, "badged_server")
	servers := []*process{
		launch(t, nil, "serve", "--listen=127.0.0.1:0", "--database-url="+url+"&password_file="+file),
		launch(t, func(c *exec.Cmd) { c.Env = append(c.Env, "PGPASSFILE="+passfile) }, "serve", "--listen=127.0.0.1:0", "--roles=api", "--redis-url="+newRedis(t).URL(), "--database-url="+url),
	}
	for i, password := range []string{"second", "third"} {
		position := publish(t, servers[0], delivered("c", 2*i+1, `"ann"`))
		for _, p := range servers {
			wantTotal(t, p, "ann", position, int64(2*i)+1)
		}
		sql(t, database, `ALTER ROLE badged_server PASSWORD '`+password+`'`)
		sql(t, database, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'badged_server'`)
		for _, p := range servers {
			p.awaitAnswer(http.MethodPost, "/v1/events", delivered("c", 2*i+2, `"ann"`), http.StatusServiceUnavailable, "refuses the password of badged")
		}
		write(password)
		for _, p := range servers {
			p.awaitAnswer(http.MethodPost, "/v1/events", delivered("c", 2*i+2, `"ann"`), http.StatusAccepted, "")
			p.awaitAnswer(http.MethodGet, "/readyz", "", http.StatusOK, "")
		}
	}
	must(t, "verify", "--database-url="+url+"&password_file="+file)
	fails(t, 1, "--database-url (BADGED_DATABASE_URL): password_file: open "+file+".gone: no such file", "verify", "--database-url="+url+"&password_file="+file+".gone")
}
