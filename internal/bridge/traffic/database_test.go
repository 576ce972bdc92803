package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

// modelDatabase is a model behind the interfaces of a database.
type modelDatabase struct {
	model *model
	err   error // returned by the next call
}

func (d *modelDatabase) fail() error {
	err := d.err
	d.err = nil
	return err
}

func (d *modelDatabase) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	if err := d.fail(); err != nil {
		return events.Receipt{}, err
	}
	id, err := d.model.Append(ctx, evs)
	return events.Receipt{TransactionID: id}, err
}

func (d *modelDatabase) Folded(_ context.Context, _ []string, transactionID int64) (bool, error) {
	d.model.mu.Lock()
	defer d.model.mu.Unlock()
	return transactionID <= d.model.folded, d.fail()
}

func (d *modelDatabase) Badges(ctx context.Context, users []string) ([]pubsub.Badge, error) {
	return d.model.Badges(ctx, users, 0)
}

func TestLoadIntoADatabase(t *testing.T) {
	content := chatter(500)
	unread := expectedUnread(t, strings.NewReader(content))
	database := &modelDatabase{model: newModel(), err: io.ErrUnexpectedEOF}
	database.model.foldOnAppend = false
	clock := newTestClock()
	clock.onSleep = func() { // called once for the error, and then for each batch
		database.model.mu.Lock()
		defer database.model.mu.Unlock()
		database.model.folded++
	}
	got, err := Load(t.Context(), Config{
		File: writeFile(t, "t", content), InFlight: 1, BatchSize: 100, clock: clock,
		Target: &DatabaseTarget{log: database, badges: database},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, total := sums(unread); got.TotalUnread != total || got.Messages != 500 {
		t.Errorf("summary %+v, want %d unread", got, total)
	}
	checkBadges(t, database.model, unread)
}

func TestDatabaseErrorsThatPass(t *testing.T) {
	postgres := func(code string) error {
		return fmt.Errorf("append 3 events: %w", &pgconn.PgError{Code: code, Message: "it said"})
	}
	for _, tt := range []struct {
		name      string
		err       error
		transient bool
	}{
		{"invalid events", &events.BatchError{Events: []events.IndexedError{{Err: &events.InvalidError{}}}}, false},
		{"no schema", fmt.Errorf("append 3 events: %w", events.ErrNotMigrated), false},
		{"wrong password", postgres("28P01"), false},
		{"undefined table", postgres("42P01"), false},
		{"shutting down", postgres("57P01"), true},
		{"starting up", postgres("57P03"), true},
		{"statement cancelled", postgres("57014"), false},
		{"too many connections", postgres("53300"), true},
		{"deadlock", postgres("40P01"), true},
		{"failed over", postgres("25006"), true},
		{"in a failed transaction", postgres("25P02"), false},
		{"connection lost", fmt.Errorf("append 3 events: %w", io.ErrUnexpectedEOF), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := classify(tt.err)
			var transient *TransientError
			if errors.As(got, &transient) != tt.transient || !errors.Is(got, tt.err) {
				t.Errorf("got %#v", got)
			}
		})
	}
	if classify(nil) != nil {
		t.Error("no error became one")
	}
}
