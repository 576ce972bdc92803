package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// publishSQL publishes an event within the transaction of a session.
const publishSQL = `SELECT badged.publish($1::text::jsonb)`

// session is a connection of a chat backend.
type session struct {
	*pgx.Conn

	t *testing.T
}

func newSession(t *testing.T, database string) session {
	t.Helper()
	conn := pgtest.Connect(t, database)
	return session{conn, t}
}

func (s session) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.Exec(s.t.Context(), statement, args...); err != nil {
		s.t.Fatal(err)
	}
}

// Open transactions that have written something do not delay badges: in the database, in another
// database of the Postgres server, or prepared. Their events count once they commit. Nothing remains
// of transactions that are rolled back, also if Postgres is killed while they are pending.
func TestOpenTransactionsDelayNoBadge(t *testing.T) {
	t.Parallel()
	pg := pgtest.NewServer(t)
	database := pg.NewDB(t, pgtest.Template{})
	p := serve(t, database, "--reconcile-interval=1s")
	ann := connect(t, p.url, "ann")
	want, seq := int64(0), 0
	// tell publishes over HTTP and in SQL, and waits until the events are counted.
	tell := func() {
		t.Helper()
		seq++
		publish(t, p, delivered("over HTTP", seq, `"ann"`))
		want++
		ann.awaitTotal(want)
		sql(t, database, publishSQL, delivered("in SQL", seq, `"ann"`))
		want++
		ann.awaitTotal(want)
	}
	clean := func() {
		t.Helper()
		must(t, "verify", "--database-url="+database)
	}
	tell()

	elsewhere := newSession(t, pg.NewDB(t, pgtest.Template{}))
	elsewhere.exec(`BEGIN`)
	elsewhere.exec(`CREATE TABLE payroll (salary bigint)`)
	ends := map[string]func(session){
		"committed":            func(s session) { s.exec(`COMMIT`) },
		"rolled back":          func(s session) { s.exec(`ROLLBACK`) },
		"prepared, committed":  func(s session) { s.exec(`COMMIT PREPARED 'prepared, committed'`) },
		"prepared, taken back": func(s session) { s.exec(`ROLLBACK PREPARED 'prepared, taken back'`) },
	}
	counts := map[string]bool{"committed": true, "prepared, committed": true}
	open := map[string]session{}
	for name := range ends {
		s := newSession(t, database)
		s.exec(`BEGIN`)
		s.exec(publishSQL, delivered(name, 1, `"ann"`))
		open[name] = s
		if strings.HasPrefix(name, "prepared") {
			s.exec(fmt.Sprintf(`PREPARE TRANSACTION '%s'`, name))
		}
		tell()
	}
	tell()
	clean()
	for name, end := range ends {
		end(open[name])
		if counts[name] {
			want++
			ann.awaitTotal(want)
		}
		tell()
		clean()
	}
	elsewhere.exec(`COMMIT`)
	tell()
	if n := total(t, p, "ann", publish(t, p, delivered("the last", 1, `"ann"`))); n != want+1 {
		t.Errorf("the total is %d, want %d", n, want+1)
	}
	must(t, "rebuild", "-q", "--database-url="+database)
	clean()
}
