package tests

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// When the disk of Postgres is full, publishers get an error, readiness and metrics report it,
// and repeated errors do not fill the server's log. When there is space again, the system recovers
// without an operator, and nothing is lost or counted twice.
//
// A limit on file sizes makes Postgres fail as on a full disk (SQLSTATE 53100) when it extends the
// log's table. Setting the limit needs no rights and affects no other process. Only Linux can
// change it while Postgres runs.
func TestDiskIsFull(t *testing.T) {
	t.Parallel()
	pg := pgtest.NewServer(t)
	database := pg.NewDB(t, pgtest.Template{})
	must(t, "migrate", "up", "--partitions=1", "--database-url="+database)
	p := serve(t, database)
	// Rolled back rows use most of the space, as long as no vacuum removes them.
	sql(t, database, `ALTER TABLE badged.events_p00_r1 SET (autovacuum_enabled = false)`)
	sql(t, database, `BEGIN; INSERT INTO badged.events_p00 (uuid, payload)
SELECT gen_random_uuid(), convert_to(repeat('x', 1500), 'UTF8') FROM generate_series(1, 10200); ROLLBACK`)
	// The limit is not a multiple of a page, so that the last write is cut short, and not
	// less than a file of the write-ahead log.
	limitFiles(t, pg, "16781312")
	sql(t, database, endSessions)

	seq := 0
	const each = 6 // a row of more than 2 kB would go to another file
	filler := func() (string, func()) {
		var body strings.Builder
		for i := range each {
			// Random ids, which compression cannot shorten.
			fmt.Fprintln(&body, event(rand.Text()+rand.Text()+rand.Text(), "message.delivered",
				fmt.Sprintf(`{"conversation_id":"c","seq":%d,"user_ids":["ann"],"sender_id":%q,"message_id":%q}`,
					seq+i+1, rand.Text()+rand.Text()+rand.Text(), rand.Text()+rand.Text()+rand.Text())))
		}
		return body.String(), func() { seq += each }
	}
	const says = "the database has no space left on its disk and nothing was stored"
	if header := awaitRefusal(t, p, says, filler); header.Get("Retry-After") != "10" {
		t.Errorf("Retry-After is %q", header.Get("Retry-After"))
	}
	awaitPostgres(t, p, "has no space left on its disk: events cannot be stored, badges can be read", "full")
	const refusals = 40
	for range refusals {
		awaitRefusal(t, p, says, filler)
	}
	if n := strings.Count(p.out.String(), `msg="request failed"`); n > refusals/2 {
		t.Errorf("%d lines tell of %d requests that failed for the same reason", n, refusals)
	}

	limitFiles(t, pg, "unlimited")
	body, _ := filler()
	var position string
	for position == "" {
		_, header, _ := request(t, http.MethodPost, p.url+"/v1/events", "application/x-ndjson", body)
		position = header.Get("Badged-Position")
	}
	wantTotal(t, p, "ann", position, int64(seq+each))
	awaitPostgres(t, p, "ok", "")
	must(t, "verify", "--database-url="+database)
}

// ownerOf returns the owner of a file.
func ownerOf(info os.FileInfo) (owner *syscall.Stat_t, ok bool) {
	if info == nil {
		return nil, false
	}
	owner, ok = info.Sys().(*syscall.Stat_t)
	return owner, ok
}

// limitFiles limits the size of files that a server and its future sessions
// may write; "unlimited" removes the limit, for all sessions.
func limitFiles(t *testing.T, pg *pgtest.Server, bytes string) {
	t.Helper()
	conn := pgtest.Connect(t, pg.URL())
	postmaster := valueIn[string](t, conn, `SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)`)
	if _, err := strconv.Atoi(postmaster); err != nil {
		t.Fatal(err)
	}
	processes := []string{postmaster}
	if bytes == "unlimited" {
		children := readFile(t, "/proc/"+postmaster+"/task/"+postmaster+"/children")
		processes = append(processes, strings.Fields(string(children))...)
	}
	for _, pid := range processes {
		cmd := exec.CommandContext(t.Context(), "prlimit", "--pid="+pid, "--fsize="+bytes+":")
		info, err := os.Stat("/proc/" + pid)
		if owner, ok := ownerOf(info); err == nil && ok && os.Geteuid() == 0 { // even root may lack the right
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
		}
		out, err := cmd.CombinedOutput()
		_, gone := os.Stat("/proc/" + pid)
		if err != nil && gone == nil {
			t.Fatalf("prlimit: %v\n%s", err, out)
		}
	}
}
