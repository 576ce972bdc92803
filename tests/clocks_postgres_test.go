package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// postgresShift replaces the functions by which Postgres reads the time of day. Timers are not
// affected, as on a machine whose clock is set.
const postgresShift = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static int64_t shift(void) {
	static volatile int64_t *seconds;
	if (!seconds) {
		void *at = mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, open(getenv("CLOCK_SHIFT"), O_RDONLY), 0);
		if (at == MAP_FAILED) abort();
		seconds = at;
	}
	return *seconds;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	static int (*right)(clockid_t, struct timespec *);
	if (!right) right = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int status = right(id, t);
	if (id == CLOCK_REALTIME) t->tv_sec += shift();
	return status;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	int status = clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return status;
}

time_t time(time_t *t) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t) *t = now.tv_sec;
	return now.tv_sec;
}
`

// newPostgresClock starts a Postgres server whose clock the test sets.
func newPostgresClock(t *testing.T) (*wrongClock, *pgtest.Server) {
	t.Helper()
	dir := pgtest.OpenDir(t)
	c := newServerClock(t)
	c.file = filepath.Join(dir, "shift")
	c.is(0)
	source, library := filepath.Join(dir, "shift.c"), filepath.Join(dir, "shift.so")
	writeFile(t, source, postgresShift)
	if out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("compile the clock of Postgres: %v\n%s", err, out)
	}
	for _, path := range []string{c.file, library} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CLOCK_SHIFT", c.file)
	t.Setenv("LD_PRELOAD", library)
	pg := pgtest.NewServer(t)
	for _, name := range []string{"CLOCK_SHIFT", "LD_PRELOAD"} { // badged itself has the right time
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	return c, pg
}

// While the clock of Postgres is wrong, badges are right, and badged does nothing irreversible.
// Once the clock is right again, nothing waits until the wrong time.
func TestWrongClockOfPostgres(t *testing.T) { //nolint:paralleltest // it sets the environment of Postgres
	clock, pg := newPostgresClock(t)
	database := pg.NewDB(t, migrated())
	var well atomic.Bool
	told := make(chan string, 1000)
	crm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct{ Type, Subject string }
		switch {
		case !well.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case json.NewDecoder(r.Body).Decode(&event) == nil:
			told <- event.Type + " " + event.Subject
		}
	}))
	t.Cleanup(crm.Close)
	p := launch(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "BADGED_ADMIN_KEYS=ops="+adminKey) },
		"serve", "--listen=127.0.0.1:0", "--database-url="+database, "--webhooks-allow-private", "--expire=*=24h", "--remind-after=*=24h")
	s := &clockStack{t: t, database: database, clock: clock, wrong: p, conn: pgtest.Connect(t, database)}
	operator(t, p, http.MethodPut, "crm", fmt.Sprintf(`{"url":%q,"events":["badge.changed","unread.reminder"],"secrets":[%q]}`, crm.URL, hookSecret), http.StatusCreated)
	publish(t, p, delivered("before", 1, `"ann"`))

	for i, ahead := range []time.Duration{time.Hour, -time.Hour, 30 * 24 * time.Hour, -30 * 24 * time.Hour} {
		clock.is(ahead)
		s.awaitAgree(false)
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			now := time.Now().Add(ahead)
			jwt := issuedWith(t, "ann", now.Add(-time.Minute), map[string]any{"exp": now.Add(time.Hour).Unix()})
			app := func(frame string) {
				t.Helper()
				wantStatus(t, jwt, http.MethodPost, p.url+"/v1/commands", "", frame, http.StatusOK)
			}
			probes := 0
			for range polls(t, "the server to follow the clock") { // the server reads that clock every few seconds, and uses it for the times of events
				probes++
				publish(t, p, delivered(fmt.Sprint("probe", i), probes, `"eve"`))
				var follows bool
				if err := s.conn.QueryRow(t.Context(), `SELECT bool_or(abs(extract(epoch FROM clock_timestamp() - created_at)) < 60) FROM badged.`+
					events.Topic(events.PartitionOf("eve", partitions))).Scan(&follows); err != nil {
					t.Fatal(err)
				}
				if status, _, _ := requestAs(t, jwt, http.MethodGet, p.url+"/v1/users/ann/badge", "", ""); status == http.StatusOK && follows {
					break
				}
			}
			chat := fmt.Sprint("chat", i)
			publish(t, p, delivered(chat, 1, `"ann"`))
			app(fmt.Sprintf(`{"t":"read","conversation_id":%q,"up_to_seq":2}`, chat)) // ahead of the delivered messages
			publish(t, p, delivered(chat, 2, `"ann"`))
			app(fmt.Sprintf(`{"t":"mark_unread","conversation_id":%q}`, chat))
			position := publish(t, p, delivered(chat, 3, `"ann"`))
			if n, want := total(t, p, "ann", position), int64(i+2); n != want { // one in each conversation
				t.Errorf("the total is %d, want %d", n, want)
			}
			before := logged(t, database)
			for _, args := range [][]string{
				{"archive", "-q", "--to=" + filepath.Join(t.TempDir(), "archive"), "--older-than=24h"},
				{"audit", "prune", "--before=" + time.Now().Add(-25*time.Hour).UTC().Format(time.RFC3339)},
			} {
				if out, said, code := command(t, append(args, "--database-url="+database)...); code != 1 || !strings.Contains(said, "it is not known which is right") {
					t.Errorf("badged %s exited with %d: %s%s", args[0], code, out, said)
				}
			}
			if after := logged(t, database); after != before {
				t.Errorf("the log has %d rows, and had %d", after, before)
			}
		})
	}

	clock.is(0)
	s.awaitAgree(true)
	well.Store(true)
	position := publish(t, p, delivered("after", 1, `"ann","ben"`))
	if n := total(t, p, "ann", position); n < 5 { // events that seem 30 days old may have expired
		t.Errorf("the total is %d, want 5 at least", n)
	}
	for said := ""; said != "badge.changed ben"; {
		select {
		case said = <-told:
			if strings.HasPrefix(said, "unread.reminder") {
				t.Errorf("%s, who has waited for seconds", said)
			}
		case <-t.Context().Done():
			t.Fatal("the webhook is not called")
		}
	}
	must(t, "verify", "-q", "--database-url="+database)
}
