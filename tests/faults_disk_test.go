package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// endSessions ends all other sessions of a database.
const endSessions = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

// awaitRefusal publishes events until an answer contains text, and returns the header of that
// answer. Earlier answers may differ: connections may have ended, or there was still space for an
// event.
func awaitRefusal(t *testing.T, p *process, text string, next func() (body string, accepted func())) (header http.Header) {
	t.Helper()
	for range polls(t, "an error that the database "+text) {
		body, accepted := next()
		status, header, answer := requestOnce(t, publisherKey, http.MethodPost, p.url+"/v1/events", "application/x-ndjson", body)
		switch {
		case status == http.StatusAccepted:
			accepted()
		case status == http.StatusServiceUnavailable && strings.Contains(answer, text):
			return header
		case status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests:
			t.Fatalf("a publisher got %d %s", status, answer)
		}
	}
	panic("unreachable")
}

// awaitPostgres waits until readiness reports a state of Postgres and, unless fault is "", until
// the metric of this fault is 1. The server must be ready all the time.
func awaitPostgres(t *testing.T, p *process, says, fault string) {
	t.Helper()
	for range polls(t, says) {
		status, _, answer := request(t, http.MethodGet, p.url+"/readyz", "", "")
		page := metricsOf(t, p)
		if status == http.StatusOK && strings.Contains(answer, `"postgres":"`+says) &&
			(fault == "" || strings.Contains(page, `badged_postgres_fault{fault="`+fault+`"} 1`)) {
			return
		}
	}
}

// When Postgres becomes read-only, as if badged were connected to a standby, publishers and apps
// get errors, readiness and metrics report it, and badges can still be read. When Postgres is
// writable again, the system recovers without an operator.
func TestPostgresIsReadOnly(t *testing.T) {
	t.Parallel()
	pg := pgtest.NewServer(t)
	database := pg.NewDB(t, pgtest.Template{})
	p := serve(t, database)
	ann := connect(t, p.url, "ann")
	publish(t, p, delivered("c", 1, `"ann"`))
	ann.awaitTotal(1)
	name := strings.TrimPrefix(parseURL(t, database).Database, "/")
	sql(t, pg.URL(), "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	sql(t, database, endSessions)

	second := func() (string, func()) {
		return delivered("c", 2, `"ann"`), func() { t.Error("an event was accepted by a database that is read-only") }
	}
	if header := awaitRefusal(t, p, "the database is read-only and nothing was stored", second); header.Get("Retry-After") != "10" {
		t.Errorf("Retry-After is %q", header.Get("Retry-After"))
	}
	awaitPostgres(t, p, "is read-only: events cannot be stored, badges can be read", "read_only")
	ann.say(`{"t":"read","id":7,"conversation_id":"c","up_to_seq":1}`)
	ann.await("the refusal of an app's command", func() bool { return ann.answers[7] == "unavailable" })
	wantTotal(t, p, "ann", "0", 1)

	sql(t, pg.URL(), "ALTER DATABASE "+name+" RESET default_transaction_read_only")
	publish(t, p, delivered("c", 2, `"ann"`))
	ann.awaitTotal(2)
	awaitPostgres(t, p, "ok", "")
}
