package moving_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/internal/pg/pgsession"
)

// A slow transaction delays the switch until it ends. If there is always a slow transaction, the
// switch lets the present ones end.
func TestSlowTransactionsLetTheSwitchThrough(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	running(t, a, b)
	user := foldtest.User(0, 0)
	conn := a.Connect(t)
	awaitSlow := func(what, where string) {
		t.Helper()
		const is = `SELECT EXISTS (SELECT FROM pg_stat_activity AS a JOIN pg_locks AS l USING (pid) WHERE l.locktype = 'advisory' AND a.datname = current_database() AND `
		projectortest.Until(t, what, func() bool {
			var found bool
			if err := conn.QueryRow(t.Context(), is+where+`)`).Scan(&found); err != nil {
				t.Fatal(err)
			}
			return found
		})
	}
	// slow returns a transaction that has appended and was open for a while.
	slow := func(id string) pgx.Tx {
		t.Helper()
		tx, err := a.Connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.Publish(t.Context(), tx, foldtest.Named(id, foldtest.Deliver(id, 1, user))); err != nil {
			t.Fatal(err)
		}
		awaitSlow("a transaction", fmt.Sprintf(`a.pid = %d AND a.xact_start < clock_timestamp() - interval '150 ms'`, tx.Conn().PgConn().PID()))
		return tx
	}
	blocked, switching, done := make(chan int), make(chan bool, 100), make(chan error, 1)
	catchingUp, goOn := make(chan bool), make(chan bool)
	var once sync.Once
	cfg := config(a, b, 0, "b")
	cfg.Blocked = func(_ string, holder pgsession.Holder) { blocked <- holder.PID; <-goOn }
	cfg.Progress = func(step copier.Step, _ int64) {
		switch step {
		case copier.CatchingUp:
			once.Do(func() { catchingUp <- true; <-goOn })
		case copier.Switching:
			switching <- true
		}
	}
	var r moving.Result
	go func() {
		var err error
		r, err = moving.Move(t.Context(), cfg)
		done <- err
	}()
	projectortest.Await(t, catchingUp, "catching up")
	first := slow("first")
	goOn <- true
	for projectortest.Await(t, blocked, "the name of the session") != int(first.Conn().PgConn().PID()) {
		goOn <- true
	}
	second := slow("second") // before the next look
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	projectortest.Await(t, switching, "an attempt to switch")
	awaitSlow("the switch", `NOT l.granted AND l.waitstart < clock_timestamp() - interval '150 ms'`)
	if err := second.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := projectortest.Await(t, done, "the move"); err != nil {
		t.Fatal(err)
	}
	if r.Attempts != 1 {
		t.Errorf("the switch took %d attempts", r.Attempts)
	}
	b.AwaitFolded(t)
	if got := b.Badge(t, user); got.Total != 2 {
		t.Errorf("the total is %d, want 2", got.Total)
	}
	verify(t, b, 0)
}

// A last copy that takes too long stops, and no longer blocks publishers. If the last round took
// too long, the switch does not block publishers at all.
func TestSlowCopiesLetPublishersGo(t *testing.T) {
	t.Parallel()
	const closed = `EXISTS (SELECT FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database WHERE datname = 'NAME' AND locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND classid = 1650552167)`
	for name, test := range map[string]struct {
		when     string
		attempts int
	}{"the last copy": {closed, 5}, "each copy": {`true`, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := newShards(t)
			b.Exec(t, `CREATE SEQUENCE slowed; CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF `+strings.ReplaceAll(test.when, "NAME", a.Pool.Config().ConnConfig.Database)+` THEN PERFORM nextval('slowed'), pg_sleep(0.8); END IF; RETURN NULL; END $$`)
			for _, table := range []string{"users", "conversations", "dedup_blocks"} {
				b.Exec(t, `CREATE TRIGGER slow BEFORE INSERT ON badged.`+table+`_p00 FOR EACH STATEMENT EXECUTE FUNCTION slow()`)
			}
			slowed := func() (n int) {
				t.Helper()
				if err := b.Pool.QueryRow(t.Context(), `SELECT coalesce(pg_sequence_last_value('slowed'), 0)`).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			appended, attempts, before := 0, 0, 0
			deliver := func() {
				appended++
				a.Append(t, foldtest.Named(fmt.Sprint("event ", appended), foldtest.Deliver("c", int64(appended), foldtest.User(0, 0))))
				a.Fold(t)
			}
			deliver()
			cfg := config(a, b, 0, "b")
			cfg.Patience, cfg.Attempts = time.Second, test.attempts
			cfg.Progress = func(step copier.Step, _ int64) {
				switch {
				case step == copier.CatchingUp && attempts == 0:
					deliver() // for the next round
				case step == copier.Switching:
					attempts++
					deliver()
					before = slowed()
				}
			}
			if _, err := moving.Move(t.Context(), cfg); !errors.Is(err, copier.ErrBusy) {
				t.Fatalf("it ended with %v", err)
			}
			switch n := slowed(); {
			case test.when == closed && (n == 0 || n > 2*attempts):
				t.Errorf("in %d attempts %d tables were copied", attempts, n)
			case test.when != closed && n > before:
				t.Errorf("the gate was closed for %d tables", n-before)
			}
		})
	}
}
