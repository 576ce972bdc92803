package splitting_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/projector/lag"
)

// A log that has not heard of a split appends to the partitions that have the users now,
// messages to rooms included; within a transaction of the caller, which cannot be repeated
// here, it does so the next time.
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
	projectortest.Until(t, "the new partitions are folded", func() bool {
		held, err := eventlog.Held(t.Context(), d.Pool)
		if err != nil {
			t.Fatal(err)
		}
		lags, err := lag.Measure(t.Context(), d.Pool, held, 1)
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(lags, func(l lag.Lag) bool { return l.Events > 0 })
	})
	for user, want := range map[string]int64{ann: 3, ben: 2} {
		if b, err := d.Reader.Badge(t.Context(), user); err != nil || b.Total != want {
			t.Errorf("%s has %d, want %d: %v", user, b.Total, want, err)
		}
	}
}
