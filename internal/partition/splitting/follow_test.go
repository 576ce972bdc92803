package splitting_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/splitting"
	"github.com/badged/badged/projector"
)

// A log with an old map appends to the children of a split partition, also messages to rooms. In a
// transaction of the caller, which cannot be retried, the first append fails and the next append
// succeeds.
func TestLogsFollowASplit(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	ann, ben := foldtest.User(0, 0), foldtest.User(0, 4)
	join := foldtest.Event("join", events.RoomJoined, "room", nil, ann, ben)
	if _, err := d.Log.Append(t.Context(), join); err != nil {
		t.Fatal(err)
	}
	stale := func() *events.Log {
		log, err := events.Open(t.Context(), d.Pool)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append(t.Context(), join); err != nil { // it knows the room
			t.Fatal(err)
		}
		return log
	}
	appending, toRoom, within := stale(), stale(), stale()
	d.Start(t, func(cfg *projector.Config) {
		cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 100*time.Millisecond
	})
	split(t, d, 0)
	for name, try := range map[string]func() error{
		"of a user": func() error {
			_, err := appending.Append(t.Context(), foldtest.Named("one", foldtest.Deliver("c", 1, ann)))
			return err
		},
		"of a room": func() error {
			_, err := toRoom.Append(t.Context(), foldtest.Event("post", events.RoomPosted, "room", foldtest.Seq(1)))
			return err
		},
	} {
		if err := try(); err != nil {
			t.Errorf("an event %s: %v", name, err)
		}
	}
	publish := func() error {
		return pgx.BeginFunc(t.Context(), d.Pool, func(tx pgx.Tx) error {
			_, err := within.Publish(t.Context(), tx, foldtest.Named("two", foldtest.Deliver("c", 2, ann, ben)))
			return err
		})
	}
	if err := publish(); !errors.Is(err, events.ErrNotHeld) {
		t.Errorf("a transaction that has not heard of the split: %v", err)
	}
	if err := publish(); err != nil {
		t.Errorf("the transaction again: %v", err)
	}
	d.AwaitFolded(t)
	for user, want := range map[string]int64{ann: 3, ben: 2} {
		if b, err := d.Reader.Badge(t.Context(), user); err != nil || b.Total != want {
			t.Errorf("%s has %d, want %d: %v", user, b.Total, want, err)
		}
	}
}

// Another part of the process reads the layout between the encoding of an event and its refusal.
func TestAppendFollowsALayoutThatOthersHaveRead(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.Append(t, foldtest.Deliver("c", 1, ann))
	d.Start(t, func(cfg *projector.Config) {
		cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 100*time.Millisecond
	})
	split := false
	_, err := d.Log.AppendWith(t.Context(), func(*pgx.Batch) {
		if split {
			return
		}
		split = true
		if _, err := splitting.Split(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 0}); err != nil {
			t.Error(err)
		}
		if err := d.Log.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
	}, foldtest.Deliver("c", 2, ann))
	if err != nil {
		t.Fatal(err)
	}
	d.AwaitFolded(t)
	if b, err := d.Reader.Badge(t.Context(), ann); err != nil || b.Total != 2 {
		t.Errorf("the total is %d, want 2: %v", b.Total, err)
	}
}

// Messages to a room go to the partitions with its members, while the tables of the children and
// old rows also name members. A transaction with a snapshot before the split is refused.
func TestMessagesToRoomsDuringASplit(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	ann, ben, carl := foldtest.User(0, 0), foldtest.User(0, 4), foldtest.User(1, 0)
	d.Append(t, foldtest.Event("join", events.RoomJoined, "room", nil, ann, ben, carl))
	alone := halves()[0] // in a room of its own, which both partitions know then
	d.Append(t, foldtest.Event("alone", events.RoomJoined, "closet", foldtest.UpTo(5), alone), foldtest.Event("said", events.RoomPosted, "closet", foldtest.Seq(2)))
	d.Start(t, func(cfg *projector.Config) {
		cfg.PollInterval, cfg.OwnershipInterval = 10*time.Millisecond, 100*time.Millisecond
	})
	stale, err := d.Connect(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stale.Exec(t.Context(), `SELECT FROM badged.partitions`); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	posts := int64(0)
	inSQL := func() string {
		return fmt.Sprintf(`SELECT badged.publish('{"specversion":"1.0","id":"sql%d","source":"sql","type":"room.posted","data":{"conversation_id":"room","seq":%[1]d}}')`, posts)
	}
	post := func() {
		posts++
		d.Append(t, foldtest.Event(fmt.Sprint("post", posts), events.RoomPosted, "room", foldtest.Seq(posts)))
		posts++
		d.Exec(t, inSQL())
	}
	steps := map[copier.Step]bool{}
	if _, err := splitting.Split(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 0, Options: copier.Options{Progress: func(step copier.Step, _ int64) {
		if !steps[step] {
			steps[step] = true
			post()
		}
	}}}); err != nil {
		t.Fatal(err)
	}
	post()
	posts++
	_, err = stale.Exec(t.Context(), inSQL())
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "BD100" {
		t.Errorf("a transaction with an old snapshot: %v", err)
	}
	posts--
	d.AwaitFolded(t)
	for _, user := range []string{ann, ben, carl} {
		if b, err := d.Reader.Badge(t.Context(), user); err != nil || b.Total != posts {
			t.Errorf("%s has %d, want %d: %v", user, b.Total, posts, err)
		}
	}
	verify(t, d)
}
