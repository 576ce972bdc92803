package projector

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/projector/internal/store/storetest"
)

// publication is a publisher's open transaction, and its events.
type publication struct {
	publish func(context.Context, events.Event) error
	// takeBack publishes an event and rolls it back to a savepoint; nil if
	// that is not possible.
	takeBack         func(context.Context, events.Event) error
	id               func(context.Context) (int64, error)
	commit, rollback func(context.Context) error

	transactionID int64
	events        []events.Event
}

// publishing are the ways to publish in a transaction.
var publishing = map[string]func(context.Context, *pgxpool.Pool, *sql.DB) (*publication, error){
	"pgx": func(ctx context.Context, pool *pgxpool.Pool, _ *sql.DB) (*publication, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		publish := func(ctx context.Context, e events.Event) error { _, err := events.Publish(ctx, tx, e); return err }
		return ofPgx(tx, publish), nil
	},
	"function": func(ctx context.Context, pool *pgxpool.Pool, _ *sql.DB) (*publication, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		return ofPgx(tx, func(ctx context.Context, e events.Event) error {
			payload, err := e.MarshalJSON()
			if err == nil {
				_, err = tx.Exec(ctx, `SELECT badged.publish($1::text::jsonb)`, string(payload))
			}
			return err
		}), nil
	},
	"database/sql": func(ctx context.Context, _ *pgxpool.Pool, db *sql.DB) (*publication, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		return &publication{
			publish: func(ctx context.Context, e events.Event) error { _, err := events.Publish(ctx, tx, e); return err },
			id: func(ctx context.Context) (id int64, err error) {
				err = tx.QueryRowContext(ctx, transactionIDSQL).Scan(&id)
				return id, err
			},
			commit:   func(context.Context) error { return tx.Commit() },
			rollback: func(context.Context) error { return tx.Rollback() },
		}, nil
	},
}

const transactionIDSQL = `SELECT pg_current_xact_id()::text::bigint`

func ofPgx(tx pgx.Tx, publish func(context.Context, events.Event) error) *publication {
	return &publication{
		publish: publish,
		takeBack: func(ctx context.Context, e events.Event) error {
			if _, err := tx.Exec(ctx, `SAVEPOINT before`); err != nil {
				return err
			}
			if err := publish(ctx, e); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `ROLLBACK TO SAVEPOINT before`)
			return err
		},
		id: func(ctx context.Context) (id int64, err error) {
			err = tx.QueryRow(ctx, transactionIDSQL).Scan(&id)
			return id, err
		},
		commit: tx.Commit, rollback: tx.Rollback,
	}
}

// publishers are concurrent open transactions, and the model of their outcome:
// which have committed, and their order in the log.
type publishers struct {
	d         *database
	db        *sql.DB
	users     []string
	history   int // makes the event ids of this history unique
	named     int
	open      []*publication
	committed []*publication
	// projectors fold in turns, and each believes to own the partition; the
	// line of the second can be cut.
	projectors []*Projector
	line       *line
}

func (ps *publishers) begin(t *rapid.T) {
	if len(ps.open) == 4 {
		t.Skip("enough are open")
	}
	how := rapid.SampledFrom([]string{"pgx", "function", "database/sql"}).Draw(t, "how")
	p, err := publishing[how](context.Background(), ps.d.pool, ps.db)
	if err != nil {
		t.Fatal(err)
	}
	ps.open = append(ps.open, p)
	ps.publish(t, p)
}

// draw draws a new event, or a retry of an earlier one, whatever became of it.
func (ps *publishers) draw(t *rapid.T) events.Event {
	var told []events.Event
	for _, p := range slices.Concat(ps.open, ps.committed) {
		told = append(told, p.events...)
	}
	if len(told) > 0 && rapid.IntRange(0, 4).Draw(t, "again") == 0 {
		return rapid.SampledFrom(told).Draw(t, "which")
	}
	ps.named++
	e := foldtest.DrawEvent(t, fmt.Sprint("e", ps.named), rapid.SampledFrom(foldtest.PublishedTypes()).Draw(t, "type"), ps.users)
	e.Source = fmt.Sprint("publishers ", ps.history)
	return e
}

func (ps *publishers) publish(t *rapid.T, p *publication) {
	e := ps.draw(t)
	err := p.publish(context.Background(), e)
	if err == nil && p.transactionID == 0 {
		p.transactionID, err = p.id(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	p.events = append(p.events, e)
}

// pick draws an open transaction.
func (ps *publishers) pick(t *rapid.T) (int, *publication) {
	if len(ps.open) == 0 {
		t.Skip("none is open")
	}
	i := rapid.IntRange(0, len(ps.open)-1).Draw(t, "transaction")
	return i, ps.open[i]
}

func (ps *publishers) end(t *rapid.T, i int, commit bool) {
	p := ps.open[i]
	ps.open = slices.Delete(ps.open, i, i+1)
	end := p.rollback
	if commit {
		end = p.commit
		ps.committed = append(ps.committed, p)
	}
	if err := end(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// fold makes one of the projectors fold a batch. One that was overtaken is
// fenced off, one that did not see the first occurrence of an event may take
// it for new, and one whose line is cut does not know whether it committed.
func (ps *publishers) fold(t *rapid.T, projector int, allowed error) {
	p := rapid.SampledFrom(ps.projectors[projector].partitions).Draw(t, "partition")
	p.limit = rapid.IntRange(1, 5).Draw(t, "batch")
	_, _, err := p.step(context.Background())
	if err != nil && !notKnown(err) && (allowed == nil || !errors.Is(err, allowed)) {
		t.Fatal(err)
	}
}

// actions are the possible steps of a history.
func (ps *publishers) actions(tt *testing.T) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"begin":   ps.begin,
		"publish": func(t *rapid.T) { _, p := ps.pick(t); ps.publish(t, p) },
		"take back": func(t *rapid.T) {
			_, p := ps.pick(t)
			if p.takeBack == nil {
				t.Skip("not this way")
			}
			if err := p.takeBack(context.Background(), ps.draw(t)); err != nil {
				t.Fatal(err)
			}
		},
		"commit":    func(t *rapid.T) { i, _ := ps.pick(t); ps.end(t, i, true) },
		"roll back": func(t *rapid.T) { i, _ := ps.pick(t); ps.end(t, i, false) },
		"fold":      func(t *rapid.T) { ps.fold(t, 0, nil) },
		"fold too":  func(t *rapid.T) { ps.fold(t, 1, nil) },
		"fold and be cut off": func(t *rapid.T) {
			ps.line.answers.Store(rapid.Int64Range(0, 8).Draw(t, "answers"))
			ps.fold(t, 1, errCut)
			ps.line.answers.Store(-1)
		},
		"crash": func(t *rapid.T) {
			i := rapid.IntRange(0, 1).Draw(t, "projector")
			pool := ps.projectors[i].cfg.Pool
			ps.projectors[i].connections.release()
			ps.projectors[i] = ps.d.newProjector(tt, func(cfg *Config) { cfg.Pool = pool })
		},
	}
}

// abandon rolls back transactions that a failure has left open, which would
// hide the log, and releases their connections.
func (ps *publishers) abandon() {
	ps.line.answers.Store(-1)
	for _, p := range ps.projectors {
		p.connections.release()
	}
	for _, p := range ps.open {
		_ = p.rollback(context.Background()) // the failure is what matters
	}
}

// model returns the model of the final log.
func (ps *publishers) model() (m foldtest.Model) {
	slices.SortFunc(ps.committed, func(a, b *publication) int { return cmp.Compare(a.transactionID, b.transactionID) })
	for _, p := range ps.committed {
		m.Events = append(m.Events, p.events...)
	}
	return m
}

// Publishers in Go and in SQL have concurrent transactions, which commit in
// another order than they began, roll back as a whole or in part, and stay
// open while projectors fold, are fenced off, cut off and crash. Committed
// events count once, in the order of the log, and others do not, with the
// right versions.
func TestConcurrentPublishers(t *testing.T) {
	d := openDatabase(t, pgtest.NewServer(t).NewDB(t, migrated))
	l := new(line)
	l.answers.Store(-1)
	cuttable := newPool(t, d.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.DialFunc = l.dial })
	db := stdlib.OpenDBFromPool(d.pool)
	t.Cleanup(func() { _ = db.Close() })
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++ // all histories share a database, each with its own users
		ps := &publishers{
			d: d, db: db, line: l, history: n,
			users: []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)},
			projectors: []*Projector{
				d.newProjector(t, nil), d.newProjector(t, func(cfg *Config) { cfg.Pool = cuttable }),
			},
		}
		defer ps.abandon()
		rt.Repeat(ps.actions(t))
		for len(ps.open) > 0 {
			ps.end(rt, rapid.IntRange(0, len(ps.open)-1).Draw(rt, "transaction"), rapid.Bool().Draw(rt, "commit"))
		}
		d.fold(t)

		truth, single := ps.model(), storetest.NewMemory()
		for i := range truth.Events {
			single.Commit(rt, truth.Events[i])
		}
		for _, id := range ps.users {
			want := single.User(id)
			if diff := gocmp.Diff(truth.Describe(id), d.describe(t, id)); diff != "" {
				rt.Fatalf("after\n%s%s has (-want +got):\n%s", foldtest.Story(truth.Events), id, diff)
			}
			if diff := gocmp.Diff(storetest.Versions(want), d.versions(t, id)); diff != "" {
				rt.Fatalf("after\n%sthe versions of %s are (-one by one +got):\n%s", foldtest.Story(truth.Events), id, diff)
			}
		}
	})
	d.checkSums(t)
}
