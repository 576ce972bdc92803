package projector

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/replaytest"
)

// newOwner returns a projector that acts as the owner of partitions, has folded
// everything there, and waits for no open transaction.
func (d *database) newOwner(t *testing.T, pool *pgxpool.Pool, partitions ...int) *Projector {
	t.Helper()
	p := d.newProjector(t, func(cfg *Config) { cfg.Pool = pool })
	p.open.Patience = 0
	for _, id := range partitions {
		p.partitions[id].owned.Store(true)
		drain(t, p.partitions[id])
	}
	return p
}

// appendTo appends events through a projector, which must leave the partitions
// left to be folded by their loops.
func appendTo(t *testing.T, p *Projector, left []int, evs ...events.Event) events.Receipt {
	t.Helper()
	receipt, err := p.Append(t.Context(), evs...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(left, receipt.Partitions); diff != "" {
		t.Errorf("partitions that are not folded (-want +got):\n%s", diff)
	}
	return receipt
}

// lockUsers locks the users of partition 0, for as long as the test wants.
func (d *database) lockUsers(t *testing.T) pgx.Tx {
	t.Helper()
	tx := begin(t, d.pool)
	pgtest.Exec(t, tx, `LOCK TABLE badged.users_p00 IN ACCESS EXCLUSIVE MODE`)
	return tx
}

func (d *database) wantTotal(t *testing.T, user string, total int64) {
	t.Helper()
	if b := d.badge(t, user); b.Total != total || b.Version != total {
		t.Errorf("%s has total %d at version %d, want %d at %[4]d", user, b.Total, b.Version, total)
	}
}

// An append does not wait for a batch that takes long: it leaves the events to
// the loop.
func TestAppendDuringABatch(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	part := p.partitions[0]
	part.foldLock <- struct{}{} // as a batch does
	appendTo(t, p, []int{0}, foldtest.Deliver("c", 1, ann))
	<-part.foldLock
	d.wantTotal(t, ann, 0)
	drain(t, part)
	d.wantTotal(t, ann, 1)
	appendTo(t, p, nil, foldtest.Deliver("c", 2, ann))
	d.wantTotal(t, ann, 2)
}

// An append waits a moment for a loop that has to go first.
func TestAppendWaitsForTheLoop(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	p.foldLockTimeout = time.Minute
	part := p.partitions[0]
	d.append(t, foldtest.Deliver("c", 1, ann))
	part.foldLock <- struct{}{}
	part.ready = false // as after an append that found the event
	<-part.foldLock
	left := make(chan []int, 1)
	go func() {
		receipt, err := p.Append(t.Context(), foldtest.Deliver("c", 2, ann))
		if err != nil {
			t.Error(err)
		}
		left <- receipt.Partitions
	}()
	for waits := false; !waits; {
		part.foldLock <- struct{}{}
		waits = part.caughtUp != nil
		<-part.foldLock
	}
	drain(t, part)
	if diff := cmp.Diff([]int(nil), await(t, left, "the append")); diff != "" {
		t.Errorf("partitions that are not folded (-want +got):\n%s", diff)
	}
	d.wantTotal(t, ann, 2)
}

// The badge has changed when Append returns, in the transaction that appended
// the event.
func TestAppendFolds(t *testing.T) {
	d := newDatabase(t)
	var said []string
	pool := newPool(t, d.url, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { said = append(said, n.Message) }
	})
	p, ann := d.newOwner(t, pool, 0), foldtest.User(0, 0)
	for total := int64(1); total <= 3; total++ {
		receipt := appendTo(t, p, nil, foldtest.Deliver("c", total, ann))
		d.wantTotal(t, ann, total)
		if position := d.position(t, 0); position.TransactionID != receipt.TransactionID || position != p.partitions[0].cursor.Position {
			t.Errorf("the position is %v, in memory %v; the receipt is of transaction %d", position, p.partitions[0].cursor.Position, receipt.TransactionID)
		}
		if diff := cmp.Diff([]string{"t t t"}, d.lines(t, `SELECT concat_ws(' ', e.transaction_id = o.last_processed_transaction_id,
    e.xmin = o.xmin AND e.xmin = u.xmin, e.offset = o.offset_acked)
FROM badged.events_p00 AS e, badged.events_p00_offsets AS o, badged.users_p00 AS u
WHERE o.consumer_group = 'projector' ORDER BY e.transaction_id DESC LIMIT 1`)); diff != "" {
			t.Errorf("the row of the log, the position and the badge are not of one transaction (-want +got):\n%s", diff)
		}
	}
	if n := count(p.metrics.folded); n != 3 {
		t.Errorf("%d events are counted as folded, want 3", n)
	}
	if len(said) > 0 {
		t.Errorf("Postgres warns: %q", said)
	}
	d.checkReplay(t, ann)
}

// If the log has other events to fold, whether after the position or of a
// transaction that it has passed, Append leaves its own to the loop. Nothing is
// lost or counted twice, and the cache stays right.
func TestAppendIsRefused(t *testing.T) {
	for name, others := range map[string]func(*testing.T, *database, *Projector, events.Event){
		"next": func(t *testing.T, d *database, _ *Projector, e events.Event) { d.append(t, e) },
		"late": func(t *testing.T, d *database, p *Projector, e events.Event) {
			tx := begin(t, d.pool)
			publish(t, tx, e)
			appendTo(t, p, nil, foldtest.Deliver("c", 1, foldtest.User(0, 9)))
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
			appendTo(t, p, nil, foldtest.Deliver("c", 1, ann))
			others(t, d, p, foldtest.Deliver("c", 2, ann))
			appendTo(t, p, []int{0}, foldtest.Deliver("c", 3, ann))
			d.wantTotal(t, ann, 1)
			if n := count(p.metrics.refused); n != 1 {
				t.Errorf("%d appends are counted as refused, want 1", n)
			}
			appendTo(t, p, []int{0}, foldtest.Deliver("c", 4, ann)) // the loop goes first
			if n := count(p.metrics.refused); n != 1 {
				t.Errorf("%d appends are counted as refused, want still 1", n)
			}
			drain(t, p.partitions[0])
			d.wantTotal(t, ann, 4)
			appendTo(t, p, nil, foldtest.Deliver("c", 5, ann))
			d.wantTotal(t, ann, 5)
			d.checkReplay(t, ann)
		})
	}
}

// An append does not fold on rows that another program has changed since.
func TestAppendAfterRowsWereChanged(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	appendTo(t, p, nil, foldtest.Deliver("c", 1, ann))
	open := begin(t, d.pool) // the next position has a pending transaction
	publish(t, open, foldtest.Deliver("c", 1, foldtest.User(0, 1)))
	for total := int64(50); total < 52; total++ {
		d.exec(t, `UPDATE badged.users SET total = $2, categories = jsonb_build_object('chat', $2::bigint) WHERE user_id = $1`, ann, total)
		d.revise(t, 0)
		appendTo(t, p, []int{0}, foldtest.Deliver("c", 2*total, ann))
		drain(t, p.partitions[0])
		appendTo(t, p, nil, foldtest.Deliver("c", 2*total+1, ann))
		if b := d.badge(t, ann); b.Total != total+2 {
			t.Errorf("the total is %d, want what was changed and two more: %d", b.Total, total+2)
		}
	}
}

// The loop may be busy elsewhere when a batch is refused, so that its cache is
// as the refused batch left it: that must not show.
func TestCacheAfterARefusedAppend(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	part := p.partitions[0]
	appendTo(t, p, nil, foldtest.Deliver("c", 1, ann))
	d.append(t, foldtest.Deliver("c", 2, foldtest.User(0, 1)))
	appendTo(t, p, []int{0}, foldtest.Deliver("c", 3, ann))
	if part.cache.User(ann) != nil {
		t.Error("a user of the batch that failed is remembered")
	}
	drain(t, part)
	d.wantTotal(t, ann, 2)
	d.checkReplay(t, ann)
}

// A position that passes open transactions remembers them, whether or not a
// later one had ended before.
func TestAppendPassesOpenTransactions(t *testing.T) {
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprintf("a later one has ended %v", ended), func(t *testing.T) {
			d := openDatabase(t, pgtest.Borrow(t).NewDB(t, migrated))
			p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
			appendTo(t, p, nil, foldtest.Deliver("c", 1, ann)) // its rows and plans are known from now on
			open := begin(t, d.pool)
			publish(t, open, foldtest.Deliver("c", 2, ann))
			if ended {
				if err := begin(t, d.pool).Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			appendTo(t, p, nil, foldtest.Deliver("c", 3, ann))
			d.wantTotal(t, ann, 2)
			appendTo(t, p, nil, foldtest.Deliver("c", 4, ann)) // the list is carried on
			if err := open.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			replaytest.Verify(t, d.pool, d.log, ann) // which leaves out what is not folded
			drain(t, p.partitions[0])
			d.wantTotal(t, ann, 4)
			d.checkReplay(t, ann)
		})
	}
}

// An event counts once, whether it is repeated within an append or later, and
// whether or not the owner remembers it.
func TestAppendOfRepeats(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	e := foldtest.Deliver("c", 1, ann)
	appendTo(t, p, nil, e, e)
	d.wantTotal(t, ann, 1)
	appendTo(t, p, nil, e)
	d.wantTotal(t, ann, 1)
	d.merge(t, p.partitions[0])
	appendTo(t, p, nil, e, foldtest.Deliver("c", 2, ann))
	d.wantTotal(t, ann, 2)
	if n := count(p.metrics.duplicates); n != 3 {
		t.Errorf("%d duplicates are counted, want 3", n)
	}
	d.checkReplay(t, ann)
}

// Only the partitions that the projector owns are folded at once.
func TestAppendToSeveralPartitions(t *testing.T) {
	d := newDatabase(t)
	p := d.newOwner(t, d.pool, 0, 2)
	var users []string
	for partition := range foldtest.Partitions {
		users = append(users, foldtest.User(partition, 0))
	}
	receipt := appendTo(t, p, []int{1, 3}, foldtest.Deliver("c", 1, users...), foldtest.Deliver("c", 2, users[2], users[3]))
	for i, want := range []int64{1, 0, 2, 0} {
		d.wantTotal(t, users[i], want)
	}
	if d.position(t, 0).TransactionID != receipt.TransactionID || d.position(t, 2).TransactionID != receipt.TransactionID {
		t.Errorf("transaction %d moved the positions to %v", receipt.TransactionID, d.positions(t))
	}
	d.fold(t)
	for i, want := range []int64{1, 1, 2, 2} {
		d.wantTotal(t, users[i], want)
	}
}

// An invalid event refuses all of its call, as in the log.
func TestAppendOfInvalidEvents(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	_, err := p.Append(t.Context(), foldtest.Deliver("c", 1, ann), foldtest.Deliver("", 2, ann))
	var bad *events.BatchError
	if !errors.As(err, &bad) || len(bad.Events) != 1 || bad.Events[0].Index != 1 {
		t.Errorf("the error is %v", err)
	}
	if receipt, err := p.Append(t.Context()); err != nil || receipt.TransactionID != 0 {
		t.Errorf("without events: %+v, %v", receipt, err)
	}
	if n := d.lines(t, `SELECT count(*)::text FROM badged.events_p00`); n[0] != "0" {
		t.Errorf("%s events are in the log", n[0])
	}
	appendTo(t, p, nil, foldtest.Deliver("c", 1, ann))
	d.wantTotal(t, ann, 1)
}

// Large appends are left to the loops.
func TestLargeAppend(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	evs := make([]events.Event, largeAppend+1)
	for i := range evs {
		evs[i] = foldtest.Deliver("c", int64(i+1), ann)
	}
	appendTo(t, p, []int{0}, evs...)
	d.wantTotal(t, ann, 0)
	drain(t, p.partitions[0])
	d.wantTotal(t, ann, largeAppend+1)
	appendTo(t, p, nil, evs[:largeAppend]...)
	d.wantTotal(t, ann, largeAppend+1)
}

// Publishers do not depend on the tables of the badges: if these are locked, as
// while a rebuild swaps them, or not as expected, the events are in the log.
func TestAppendWhereTablesDoNotTakeRows(t *testing.T) {
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	totals := map[string]int64{ann: 3, bob: 1}
	for name, hinder := range map[string]func(*testing.T, *database) (end func()){
		"locked": func(t *testing.T, d *database) func() {
			tx := d.lockUsers(t)
			return func() {
				if err := tx.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
			}
		},
		"mislaid": func(t *testing.T, d *database) func() {
			d.exec(t, `ALTER TABLE badged.users_p00 RENAME TO mislaid`)
			return func() { d.exec(t, `ALTER TABLE badged.mislaid RENAME TO users_p00`) }
		},
	} {
		// The rows of ann are remembered, those of bob have to be loaded.
		for _, user := range []string{ann, bob} {
			t.Run(name+" "+user, func(t *testing.T) {
				d := newDatabase(t)
				p := d.newOwner(t, d.pool, 0)
				// From now on the connection has plans for all that follows: planning
				// waits for locks too.
				appendTo(t, p, nil, foldtest.Deliver("c", 1, ann))
				appendTo(t, p, nil, foldtest.Deliver("c", 2, ann))
				end := hinder(t, d)
				appendTo(t, p, []int{0}, foldtest.Deliver("c", 3, user))
				end()
				drain(t, p.partitions[0])
				d.wantTotal(t, user, totals[user])
				d.checkReplay(t, user)
			})
		}
	}
}

// Publishers do not wait for a loop whose batch is held up.
func TestAppendDoesNotWaitForTheLoop(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	tx := d.lockUsers(t)
	d.append(t, foldtest.Deliver("c", 1, ann))
	folded := make(chan error, 1)
	go func() {
		_, _, err := p.partitions[0].step(context.WithoutCancel(t.Context()))
		folded <- err
	}()
	for len(d.lines(t, `SELECT 'waits' FROM pg_locks WHERE NOT granted AND relation = 'badged.users_p00'::regclass`)) == 0 {
	}
	appendTo(t, p, []int{0}, foldtest.Deliver("c", 2, ann))
	select {
	case err := <-folded:
		t.Errorf("the batch is not held up any more: %v", err)
	default:
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := await(t, folded, "the batch"); err != nil {
		t.Error(err)
	}
	drain(t, p.partitions[0])
	d.wantTotal(t, ann, 2)
}

// A projector that gives up a partition folds no appends there.
func TestAppendAfterGivingUpAPartition(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	appendTo(t, p, nil, foldtest.Deliver("c", 1, ann))
	p.partitions[0].leave()
	appendTo(t, p, []int{0}, foldtest.Deliver("c", 2, ann))
	d.wantTotal(t, ann, 1)
}
