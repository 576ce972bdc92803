package projector

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// insert appends a message with plain SQL, as a backend without a client
// library may.
func (d *database) insert(t *testing.T, partition int, e events.Event) {
	t.Helper()
	payload, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	d.exec(t, `INSERT INTO badged.`+events.Topic(partition)+` (transaction_id, uuid, payload)
VALUES (pg_current_xact_id(), gen_random_uuid(), convert_to($1, 'UTF8'))`, string(payload))
}

// A poll finds events that were appended without a wake.
func TestPollFindsWhatCameWithoutAWake(t *testing.T) {
	d := newDatabase(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(3, 0)
	run(t, d.newProjector(t, func(cfg *Config) { cfg.PollInterval = 5 * time.Millisecond }))
	d.insert(t, 0, foldtest.Deliver("c", 1, ann))
	d.bus.awaitTotal(t, ann, 1)
	d.insert(t, 3, foldtest.Deliver("c", 1, bob))
	d.bus.awaitTotal(t, bob, 1)
	d.insert(t, 0, foldtest.Deliver("c", 2, ann))
	d.bus.awaitTotal(t, ann, 2)
}

// Without a poll, the projector folds what was appended before it started, and what
// it is woken for. Wakes for partitions that do not exist do nothing.
func TestWakesFindWhatWasAppended(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(2, 0)
	d.append(t, foldtest.Deliver("c", 1, ann))
	p := d.newProjector(t, nil)
	run(t, p)
	d.bus.awaitTotal(t, ann, 1)
	for total := int64(2); total <= 5; total++ {
		receipt := d.append(t, foldtest.Deliver("c", total, ann))
		if total%2 == 0 {
			p.Wake(-1)
			p.Wake(foldtest.Partitions)
			p.Wake(receipt.Partitions[0])
		} else if err := d.bus.Wake(t.Context(), receipt.Partitions); err != nil {
			t.Fatal(err)
		}
		d.bus.awaitTotal(t, ann, total)
	}
}

// A transaction that stays open delays no badge, in any database of the server. Its
// events are folded once it commits, although the position has passed it.
func TestOpenTransactionsDelayNothing(t *testing.T) {
	server := pgtest.Borrow(t)
	d := openDatabase(t, server.NewDB(t, migrated))
	elsewhere := newPool(t, server.NewDB(t, pgtest.Template{}), nil)
	ann := foldtest.User(0, 0)
	foreign, older := begin(t, elsewhere), begin(t, d.pool)
	publish(t, older, foldtest.Deliver("late", 1, ann))
	run(t, d.newProjector(t, func(cfg *Config) { cfg.PollInterval = 10 * time.Millisecond }))

	d.append(t, foldtest.Deliver("c", 1, ann))
	d.bus.awaitTotal(t, ann, 1)
	d.append(t, foldtest.Deliver("c", 2, ann))
	d.bus.awaitTotal(t, ann, 2)
	if err := older.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.bus.awaitTotal(t, ann, 3)
	if err := foreign.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.checkReplay(t, ann)
}

// A batch waits for a transaction that began a moment ago: moving its events later
// would cost as much as appending them again.
func TestBatchWaitsForYoungTransactions(t *testing.T) {
	d := openDatabase(t, pgtest.Borrow(t).NewDB(t, migrated))
	p := d.projector.partitions[1]
	young := begin(t, d.pool)
	publish(t, young, foldtest.Deliver("c", 1, foldtest.User(1, 0)))
	d.append(t, foldtest.Deliver("c", 2, foldtest.User(1, 0)))
	if more, waits, err := p.step(t.Context()); more || !waits || err != nil {
		t.Errorf("more %v, want false; waits %v, want true; error %v", more, waits, err)
	}
	if err := young.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if more, waits, err := p.step(t.Context()); more || waits || err != nil {
		t.Errorf("after the commit: more %v, waits %v, error %v", more, waits, err)
	}
	if len(p.cursor.Pending) > 0 || d.badge(t, foldtest.User(1, 0)).Total != 2 {
		t.Errorf("pending %v, total %d", p.cursor.Pending, d.badge(t, foldtest.User(1, 0)).Total)
	}
}

// The updates of a user follow one another without a gap, and say what the
// tables say.
func TestUpdatesAreToldAfterTheCommit(t *testing.T) {
	d := newDatabase(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	p := d.newProjector(t, func(cfg *Config) { cfg.MaxBatch = 3 })
	run(t, p)
	for seq := int64(1); seq <= 10; seq++ {
		d.append(t, foldtest.Deliver("c", seq, ann, bob), foldtest.Deliver("d", seq, ann),
			foldtest.Event(foldtest.Deliver("read", seq).ID, events.ConversationRead, "c", foldtest.UpTo(seq), bob))
		p.Wake(0)
	}
	d.bus.awaitTotal(t, ann, 20)
	held := map[string]pubsub.Conversation{}
	version := int64(0)
	for _, u := range d.bus.of(ann) {
		if u.BaseVersion != version || u.Partition != 0 {
			t.Errorf("an update of partition %d starts at version %d, the last ended at %d", u.Partition, u.BaseVersion, version)
		}
		version = u.Version
		for _, c := range u.Conversations {
			held[c.ConversationID] = c
		}
	}
	updates := d.bus.of(ann)
	told, tables := updates[len(updates)-1].Badge, d.badge(t, ann)
	if diff := cmp.Diff(tables, told); diff != "" {
		t.Errorf("badge (-tables +told):\n%s", diff)
	}
	for _, c := range d.pages(t, ann, badges.Filter{}, 10) {
		if diff := cmp.Diff(c, held[c.ConversationID]); diff != "" {
			t.Errorf("conversation (-tables +told):\n%s", diff)
		}
	}
}

// If the bus fails, updates are lost and counted, and folding goes on.
func TestFoldingGoesOnWithoutABus(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.bus.fail(errors.New("away"))
	p := d.newProjector(t, nil)
	stop := run(t, p)
	for seq := int64(1); seq <= 3; seq++ {
		d.append(t, foldtest.Deliver("c", seq, ann))
		p.Wake(0)
		d.bus.awaitTotal(t, ann, seq)
	}
	stop()
	if n := count(p.metrics.updatesLost); n != 3 {
		t.Errorf("%d updates are counted as lost, want 3", n)
	}
	if b := d.badge(t, ann); b.Total != 3 {
		t.Errorf("the total is %d, want 3", b.Total)
	}
}

// A failed batch is counted and tried again until it works.
func TestFailuresAreCounted(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.exec(t, `ALTER TABLE badged.users_p00 RENAME TO mislaid`)
	d.append(t, foldtest.Deliver("c", 1, ann))
	p, log, _ := d.startOwner(t, nil)
	log.await(t, "cannot fold, will try again")
	if n := count(p.metrics.failed); n == 0 {
		t.Error("the failure to fold is not counted")
	}
	d.exec(t, `ALTER TABLE badged.mislaid RENAME TO users_p00`)
	d.bus.awaitTotal(t, ann, 1)
}

// Folding does not wait for a slow bus: updates beyond the queue are lost and counted.
func TestFoldingDoesNotWaitForTheBus(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	p := d.projector // it does not run, so its updates stay in the queue
	room := cap(p.updates)
	for seq := range room + 2 {
		d.append(t, foldtest.Deliver("c", int64(seq+1), ann))
	}
	d.awaitSettled(t, 0)
	for range room + 2 {
		step(t, p.partitions[0], 1)
	}
	if b := d.badge(t, ann); b.Total != int64(room+2) {
		t.Errorf("the total is %d, want %d", b.Total, room+2)
	}
	if n := count(p.metrics.updatesLost); n != 2 {
		t.Errorf("%d updates are counted as lost, want 2", n)
	}
}

// Every answer of the reader is the state of one instant: the total is the sum of
// its conversations.
func TestEveryAnswerIsOfOneInstant(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	var evs []events.Event
	for seq := int64(1); seq <= 100; seq++ {
		for _, c := range []string{"a", "b", "c"} {
			evs = append(evs, foldtest.Deliver(c, seq, ann))
		}
		if seq%10 == 0 {
			evs = append(evs, foldtest.Event(foldtest.Deliver("read", seq).ID, events.ConversationRead, "b", foldtest.UpTo(seq-3), ann))
		}
	}
	d.append(t, evs...)
	d.awaitSettled(t, 0)
	p := d.newProjector(t, func(cfg *Config) { cfg.MaxBatch = 2 })
	var folding sync.WaitGroup
	folding.Go(func() {
		if _, err := p.partitions[0].drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
	done := make(chan struct{})
	go func() {
		folding.Wait()
		close(done)
	}()
	for version, folding := int64(0), true; folding; {
		select {
		case <-done:
			folding = false
		default:
		}
		s := d.snapshot(t, ann)
		sum, newest := int64(0), int64(0)
		for _, c := range s.Conversations {
			sum += c.Unread
			newest = max(newest, c.Version)
		}
		if s.Total != sum || s.Categories["chat"].Total != sum || newest != s.Version {
			t.Fatalf("total %d, categories %v, sum %d; version %d, of the newest conversation %d", s.Total, s.Categories, sum, s.Version, newest)
		}
		if s.Version < version {
			t.Fatalf("version %d after %d", s.Version, version)
		}
		version = s.Version
	}
	if got := d.badge(t, ann).Total; got != 203 {
		t.Errorf("the total is %d in the end, want 203", got)
	}
}
