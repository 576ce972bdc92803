package projector

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/pubsub"
)

// insert appends a message in plain SQL, as a backend without a client library
// may.
func (d *database) insert(t *testing.T, partition int, e events.Event) {
	t.Helper()
	payload, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	d.exec(t, `INSERT INTO badged.`+events.Topic(partition)+` (transaction_id, uuid, payload)
VALUES (pg_current_xact_id(), gen_random_uuid(), $1::text::json)`, string(payload))
}

// Polling finds events that were appended without a wake.
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

// A projector folds the events appended before it started, and those that it
// is woken for, without polling. Wakes of unknown partitions do nothing.
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

// reads signals every read of a partition's log.
type reads struct {
	topic string
	done  chan struct{}
}

func (r *reads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, r, strings.Contains(data.SQL, `badged."`+r.topic+`"`))
}

func (r *reads) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ofTopic, _ := ctx.Value(r).(bool); ofTopic {
		select {
		case r.done <- struct{}{}:
		default:
		}
	}
}

// Events that an older open transaction hides are folded soon after that has
// ended: the projector knows of them and needs neither a wake nor a poll.
func TestHiddenEventsAreFoldedWhenTheyShow(t *testing.T) {
	server := pgtest.NewServer(t)
	d := openDatabase(t, server.NewDB(t, migrated))
	elsewhere := newPool(t, server.NewDB(t, pgtest.Template{}), nil)
	ann := foldtest.User(1, 0)

	older, err := elsewhere.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer older.Rollback(t.Context()) //nolint:errcheck // does nothing after Commit
	if _, err := older.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	d.append(t, foldtest.Deliver("c", 1, ann))
	more, hidden, err := d.projector.partitions[1].step(t.Context())
	if more || !hidden || err != nil {
		t.Errorf("more %v, want false; hidden %v, want true; error %v", more, hidden, err)
	}

	seen := &reads{topic: events.Topic(1), done: make(chan struct{}, 1)}
	p := d.newProjector(t, func(cfg *Config) {
		cfg.Pool = newPool(t, d.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = seen })
	})
	run(t, p)
	for range 3 { // it reads repeatedly without a wake
		await(t, seen.done, "a read of the log")
	}
	if b := d.badge(t, ann); b.Total != 0 {
		t.Errorf("the total is %d while the message is hidden", b.Total)
	}
	if err := older.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.bus.awaitTotal(t, ann, 1)
}

// The updates of a user follow one another without a gap, and match the
// tables.
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
	if diff := cmp.Diff(d.badge(t, ann), updates[len(updates)-1].Badge); diff != "" {
		t.Errorf("badge (-tables +told):\n%s", diff)
	}
	for _, c := range d.pages(t, ann, false, 10) {
		if diff := cmp.Diff(c, held[c.ConversationID]); diff != "" {
			t.Errorf("conversation (-tables +told):\n%s", diff)
		}
	}
}

// If the bus fails, updates are lost and counted, and nothing else happens.
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

// Failures are counted, and retried until they succeed.
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

// Folding does not wait for a slow bus: updates that it cannot take are lost
// and counted.
func TestFoldingDoesNotWaitForTheBus(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	p := d.projector // it does not run, so its updates stay queued
	room := cap(p.updates)
	for seq := range room + 2 {
		d.append(t, foldtest.Deliver("c", int64(seq+1), ann))
	}
	d.awaitVisible(t, 0)
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

// Every answer of the reader is one snapshot: the total is the sum of its
// conversations.
func TestEveryAnswerIsOneSnapshot(t *testing.T) {
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
	d.awaitVisible(t, 0)
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
		if s.Total != sum || s.Categories["chat"] != sum || newest != s.Version {
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
