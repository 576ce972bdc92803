package projector

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/replay"
	"github.com/badged/badged/pubsub"
)

func (d *database) heal(t testing.TB, user string) (pubsub.Update, bool) {
	t.Helper()
	update, healed, err := replay.NewVerifier(d.pool, d.log).Heal(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return update, healed
}

// Whatever was wrong: healing makes the rows what the log says, under a version
// above all that was told, and they stay right when more happens. Whoever held
// the state from before learns of every conversation that has changed.
func TestHeal(t *testing.T) {
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			d, ann := startPlants(t)
			d.fold(t)
			if _, healed := d.heal(t, ann); healed {
				t.Error("it healed what was right")
			}
			right := d.describe(t, ann)
			d.exec(t, p.sql, ann)
			told := max(d.versions(t, ann)[""], 8)
			update, healed := d.heal(t, ann)
			if !healed {
				t.Fatal("it healed nothing")
			}
			b := d.badge(t, ann)
			if b.Version <= told || update.Version != b.Version || update.BaseVersion != b.Version || update.Epoch != b.Epoch || update.Partition != 0 {
				t.Errorf("after version %d, the badge is %+v, the update %+v", told, b, update)
			}
			if update.Total != 4 || update.Mentions != 1 || update.Categories["likes"] != 1 || update.Categories["chat"] != 3 {
				t.Errorf("the update is %+v", update)
			}
			changed := map[string]int64{}
			for _, c := range d.changes(t, ann, told).Conversations {
				changed[c.ConversationID] = c.Unread
			}
			if n, ok := changed["c"]; !ok || n != 3 {
				t.Errorf("who held version %d is told of %v", told, changed)
			}
			if n, ok := changed["zombie"]; n != 0 || ok != (p.name == "a conversation too many") {
				t.Errorf("who held version %d is told of %v", told, changed)
			}
			d.exec(t, `DELETE FROM badged.conversations WHERE conversation_id = 'zombie' AND unread = 0`)
			if got := d.describe(t, ann); got != right {
				t.Errorf("healed, the tables are\n%s\nbefore they were\n%s", got, right)
			}
			if _, again := d.heal(t, ann); again {
				t.Error("it healed twice")
			}
			d.verifyAll(t, replay.VerifyOptions{})
			if e := d.explain(t, ann, time.Time{}); !e.Agrees {
				t.Errorf("the explanation disagrees: %+v", e)
			}

			d.append(t, foldtest.Deliver("c", 5, ann), foldtest.Deliver("zombie", 1, ann), foldtest.Event("r9", events.ConversationRead, "likes", foldtest.UpTo(1), ann),
				foldtest.Event("x9", events.MessageRecalled, "new", func(d *events.Data) { d.Seq = 1 }, ann))
			d.fold(t)
			d.verifyAll(t, replay.VerifyOptions{})
			if n := d.badge(t, ann).Version; n != b.Version+3 {
				t.Errorf("after three more changes the version is %d, it was %d", n, b.Version)
			}
		})
	}
}

// A conversation that the log does not know stays as a row that says nothing,
// and what happens to it later counts as if it had never been.
func TestHealAConversationTooMany(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	d.exec(t, `INSERT INTO badged.conversations SELECT (jsonb_populate_record(c, '{"conversation_id": "zombie", "marked_unread": true}')).*
FROM badged.conversations AS c WHERE user_id = $1 AND conversation_id = 'c'`, ann)
	if _, healed := d.heal(t, ann); !healed {
		t.Fatal("it healed nothing")
	}
	d.verifyAll(t, replay.VerifyOptions{})
	d.append(t, foldtest.Event("xz", events.MessageRecalled, "zombie", func(d *events.Data) { d.Seq = 3 }, ann))
	d.fold(t)
	d.verifyAll(t, replay.VerifyOptions{})
	d.append(t, foldtest.Event("mz", events.ConversationMarkedUnread, "zombie", nil, ann))
	d.fold(t)
	d.verifyAll(t, replay.VerifyOptions{})
	if n := d.badge(t, ann).Total; n != 5 {
		t.Errorf("the total is %d", n)
	}
}

// A user whom the log does not name: nothing has happened to it, but its
// version does not go back.
func TestHealAUserTooMany(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	stranger := foldtest.User(0, 9)
	d.exec(t, `INSERT INTO badged.users SELECT version, total, mentions, partition_id, $2, categories FROM badged.users WHERE user_id = $1`, ann, stranger)
	if _, healed := d.heal(t, stranger); !healed {
		t.Fatal("it healed nothing")
	}
	if b := d.badge(t, stranger); b.Total != 0 || b.Mentions != 0 || len(b.Categories) != 0 || b.Version != 9 {
		t.Errorf("the badge is %+v", b)
	}
	d.verifyAll(t, replay.VerifyOptions{})
	d.append(t, foldtest.Deliver("c", 9, stranger))
	d.fold(t)
	d.verifyAll(t, replay.VerifyOptions{})
	if b := d.badge(t, stranger); b.Total != 1 || b.Version != 10 {
		t.Errorf("the badge is %+v", b)
	}
}

// A corruption after a healing is found, and healed again.
func TestHealTwice(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	for i := range 3 {
		before := d.badge(t, ann).Version
		d.exec(t, `UPDATE badged.users SET version = version + 1, total = 0, categories = '{}' WHERE user_id = $1`, ann)
		d.exec(t, `UPDATE badged.conversations SET version = version - 1, unread = 99 WHERE user_id = $1 AND conversation_id = 'c'`, ann)
		if found, _ := d.verify(t, 0, replay.VerifyOptions{}); len(found) != 5 {
			t.Errorf("round %d: %v", i, found)
		}
		if update, healed := d.heal(t, ann); !healed || update.Version <= before+1 {
			t.Errorf("round %d: version %d after %d", i, update.Version, before+1)
		}
		d.append(t, foldtest.Deliver("c", int64(10+i), ann))
		d.fold(t)
		d.verifyAll(t, replay.VerifyOptions{})
	}
}

// While things keep happening to the user, nothing is lost and no version goes
// back.
func TestHealWhileEventsPourIn(t *testing.T) {
	d := newDatabase(t)
	p, _, stop := d.startOwner(t, nil)
	ann := foldtest.User(0, 0)
	var enough atomic.Bool
	var pouring sync.WaitGroup
	pouring.Go(func() {
		for seq := int64(1); !enough.Load(); seq++ {
			r, err := d.log.Append(t.Context(), foldtest.Deliver("c", seq, ann))
			if err != nil {
				t.Error(err)
				return
			}
			p.Wake(r.Partitions[0])
		}
	})
	for range 5 {
		await(t, d.bus.published, "an update")
		// Between two batches: one under way would write over it, and one that
		// remembers what was there too.
		d.exec(t, `WITH held AS MATERIALIZED (SELECT FROM badged.events_p00_offsets FOR UPDATE),
revised AS (UPDATE badged.partitions SET revision = revision + 1 FROM held WHERE partition_id = 0)
UPDATE badged.users SET total = total + 1000 FROM held WHERE user_id = $1`, ann)
		if _, healed := d.heal(t, ann); !healed {
			t.Error("it healed nothing")
		}
	}
	enough.Store(true)
	pouring.Wait()
	stop()
	d.fold(t)
	d.verifyAll(t, replay.VerifyOptions{})
	version := int64(0)
	for _, u := range d.bus.of(ann) {
		if u.Version <= version {
			t.Errorf("version %d was told after %d", u.Version, version)
		}
		version = u.Version
	}
}

// What is folded beside the projector holds only while nothing happens to the
// user; with the partition held up it holds whatever has.
func TestHealIsOvertaken(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	v := replay.NewVerifier(d.pool, d.log)
	var stale *badge.User
	var at events.Position
	if err := replay.WithSnapshot(t.Context(), d.pool, 0, foldtest.Partitions, func(in *replay.Snapshot) (err error) {
		at = in.Position
		stale, err = in.ReplayUser(t.Context(), ann)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	d.append(t, foldtest.Deliver("d", 2, foldtest.User(0, 1))) // of somebody else
	d.fold(t)
	if _, healed, err := v.HealUser(t.Context(), 0, ann, stale, at); healed || err != nil {
		t.Errorf("after something happened to another: %v, %v", healed, err)
	}
	d.append(t, foldtest.Deliver("c", 5, ann))
	d.fold(t)
	d.exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	if _, healed, err := v.HealUser(t.Context(), 0, ann, stale, at); healed || !errors.Is(err, replay.ErrOvertaken) {
		t.Errorf("after something happened to the user: %v, %v", healed, err)
	}
	if n := d.badge(t, ann).Total; n != 99 {
		t.Errorf("the total was set to %d all the same", n)
	}
	if update, healed, err := v.HealUser(t.Context(), 0, ann, nil, events.Position{}); !healed || err != nil || update.Total != 5 {
		t.Errorf("with the partition held up: %v, %v, %+v", healed, err, update)
	}
	d.verifyAll(t, replay.VerifyOptions{})
}

// A batch that reads before a healing is committed waits for it, and folds what
// was healed.
func TestHealHoldsUpTheProjector(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	d.exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	d.append(t, foldtest.Deliver("c", 5, ann))
	d.awaitVisible(t, 0)

	conn, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in := &replay.Snapshot{Tx: conn, Partition: 0, Partitions: foldtest.Partitions}
	if err := in.Open(t.Context(), "FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	folded := make(chan error, 1)
	go func() {
		_, err := d.projector.partitions[0].drain(t.Context())
		folded <- err
	}()
	for len(d.lines(t, `SELECT 'waits' FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)) == 0 {
		if len(folded) > 0 {
			t.Fatal("a batch went by a healing")
		}
	}
	log, err := in.ReplayUser(t.Context(), ann)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	if err := conn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := await(t, folded, "the batch"); err != nil {
		t.Fatal(err)
	}
	d.verifyAll(t, replay.VerifyOptions{})
	if b := d.badge(t, ann); b.Total != 5 {
		t.Errorf("the badge is %+v", b)
	}
}
