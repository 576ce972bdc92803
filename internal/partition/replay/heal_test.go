package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// Healing empties the row of a conversation that the log does not name. Later events count as in a
// new conversation.
func TestHealAConversationTooMany(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	d.Exec(t, `INSERT INTO badged.conversations SELECT (jsonb_populate_record(c, '{"conversation_id": "zombie", "marked_unread": true}')).*
FROM badged.conversations AS c WHERE user_id = $1 AND conversation_id = 'c'`, ann)
	if _, healed := heal(t, d, ann); !healed {
		t.Fatal("nothing was healed")
	}
	verifyAll(t, d, VerifyOptions{})
	d.Append(t, foldtest.Event("xz", events.MessageRecalled, "zombie", func(d *events.Data) { d.Seq = 3 }, ann))
	d.Fold(t)
	verifyAll(t, d, VerifyOptions{})
	d.Append(t, foldtest.Event("mz", events.ConversationMarkedUnread, "zombie", nil, ann))
	d.Fold(t)
	verifyAll(t, d, VerifyOptions{})
	if n := d.Badge(t, ann).Total; n != 5 {
		t.Errorf("the total is %d", n)
	}
}

// A corruption after healing is found, and healed again.
func TestHealTwice(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	for i := range 3 {
		before := d.Badge(t, ann).Version
		d.Exec(t, `UPDATE badged.users SET version = version + 1, total = 0, categories = '{}' WHERE user_id = $1`, ann)
		d.Exec(t, `UPDATE badged.conversations SET version = version - 1, unread = 99 WHERE user_id = $1 AND conversation_id = 'c'`, ann)
		if found, _ := verify(t, d, 0, VerifyOptions{}); len(found) != 5 {
			t.Errorf("round %d: %v", i, found)
		}
		if update, healed := heal(t, d, ann); !healed || update.Version <= before+1 {
			t.Errorf("round %d: version %d after %d", i, update.Version, before+1)
		}
		d.Append(t, foldtest.Deliver("c", int64(10+i), ann))
		d.Fold(t)
		verifyAll(t, d, VerifyOptions{})
	}
}

// While events come in, every verification compares one snapshot of the tables
// with the log, healing loses nothing, and no version goes back.
func TestVerifyAndHealUnderLoad(t *testing.T) {
	d := projectortest.New(t)
	p := d.Start(t, nil)
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(1, 0), foldtest.User(1, 1)}
	ann := users[0]
	var enough atomic.Bool
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for seq := int64(1); !enough.Load(); seq++ {
			evs := []events.Event{foldtest.Deliver("c", seq, users...), foldtest.Deliver("d", seq, users[seq%4])}
			if seq%3 == 0 {
				evs = append(evs, foldtest.Event(fmt.Sprint("r", seq), events.ConversationRead, "c", foldtest.UpTo(seq-1), users[seq%4]))
			}
			r, err := d.Log.Append(t.Context(), evs...)
			if err != nil {
				t.Error(err)
				return
			}
			for _, partition := range r.Partitions {
				p.Wake(partition)
			}
		}
	})
	projectortest.Until(t, "a row of ann", func() bool { return len(d.Bus.Of(ann)) > 0 })
	moved := map[events.Position]struct{}{}
	for i := 0; i < 12 || len(moved) < 3; i++ {
		projectortest.Await(t, d.Bus.Published, "an update")
		differences, v := verify(t, d, 0, VerifyOptions{Users: users[:2*(i%2)]})
		if len(differences) > 0 {
			t.Errorf("run %d: %v", i, differences)
		}
		moved[v.Position] = struct{}{}
		if i%3 != 0 {
			continue
		}
		// Corrupt the row between two batches: a running batch, or a batch with cached rows, would
		// overwrite it.
		d.Exec(t, `WITH held AS MATERIALIZED (SELECT FROM badged.events_p00_offsets WHERE consumer_group = 'projector' FOR UPDATE),
revised AS (UPDATE badged.partitions SET revision = revision + 1 FROM held WHERE partition_id = 0)
UPDATE badged.users SET total = total + 1000 FROM held WHERE user_id = $1`, ann)
		if _, version := healUnderLoad(t, d, ann); version == 0 {
			t.Error("nothing was healed")
		}
	}
	enough.Store(true)
	publishing.Wait()
	d.AwaitFolded(t)
	p.Stop()
	verifyAll(t, d, VerifyOptions{})
	version := int64(0)
	for _, u := range d.Bus.Of(ann) {
		if u.Version <= version {
			t.Errorf("version %d was published after %d", u.Version, version)
		}
		version = u.Version
	}
}

// A replay beside the projector is used only if the user gets no event meanwhile. A replay that
// blocks the projector is always used.
func TestHealIsOvertaken(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	v := NewVerifier(d.Pool, d.Log)
	var stale *Replay
	var position events.Position
	if err := WithSnapshot(t.Context(), d.Pool, 0, foldtest.Partitions, func(snapshot *Snapshot) (err error) {
		position = snapshot.Position
		stale, err = snapshot.replayOf(t.Context(), []string{ann})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	d.Append(t, foldtest.Deliver("d", 2, foldtest.User(0, 1))) // of somebody else
	d.Fold(t)
	if _, version, err := v.healUser(t.Context(), 0, ann, stale, position); version > 0 || err != nil {
		t.Errorf("after something happened to another: version %d, %v", version, err)
	}
	d.Append(t, foldtest.Deliver("c", 5, ann))
	d.Fold(t)
	d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	if _, version, err := v.healUser(t.Context(), 0, ann, stale, position); version > 0 || !errors.Is(err, errOvertaken) {
		t.Errorf("after something happened to the user: version %d, %v", version, err)
	}
	if n := d.Badge(t, ann).Total; n != 99 {
		t.Errorf("the total was set to %d all the same", n)
	}
	if update, version, err := v.healUser(t.Context(), 0, ann, nil, events.Position{}); version == 0 || err != nil || update.Total != 5 {
		t.Errorf("with the partition held up: %v, %v, %+v", version, err, update)
	}
	verifyAll(t, d, VerifyOptions{})
}

// A batch waits for a heal under way, and folds the healed rows.
func TestHealHoldsUpTheProjector(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	d.StopFolding() // else it may fold the message before the heal is under way
	d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, ann)
	d.Append(t, foldtest.Deliver("c", 5, ann))
	d.Records(t, 0)

	conn, err := d.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Rollback(context.WithoutCancel(t.Context())) }() // it may have ended
	snapshot := &Snapshot{Tx: conn, Partition: 0, Partitions: foldtest.Partitions}
	if err := snapshot.Open(t.Context(), "FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	folded := make(chan struct{}, 1)
	go func() {
		d.Fold(t)
		folded <- struct{}{}
	}()
	for len(d.Lines(t, `SELECT 'waits' FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)) == 0 {
		if len(folded) > 0 {
			t.Fatal("a batch did not wait for the heal")
		}
	}
	log, err := snapshot.replayOf(t.Context(), []string{ann})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := snapshot.write(t.Context(), log.user(ann), nil); err != nil {
		t.Fatal(err)
	}
	if err := conn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	projectortest.Await(t, folded, "the batch")
	verifyAll(t, d, VerifyOptions{})
	if b := d.Badge(t, ann); b.Total != 5 {
		t.Errorf("the badge is %+v", b)
	}
}
