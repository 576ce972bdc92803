package projector

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// publication is a publisher's transaction while it is open, and what is in it.
type publication struct {
	publish func(context.Context, events.Event) error
	// takeBack publishes and rolls back to before; nil where it cannot.
	takeBack         func(context.Context, events.Event) error
	id               func(context.Context) (int64, error)
	commit, rollback func(context.Context) error

	transactionID int64
	events        []events.Event
}

// patientSQL lets a transaction stay open for as long as a busy machine needs for the rest.
const patientSQL = `SET LOCAL idle_in_transaction_session_timeout = 0`

// publishing are the ways to publish within a transaction.
var publishing = map[string]func(context.Context, *pgxpool.Pool, *sql.DB) (*publication, error){
	"pgx": func(ctx context.Context, pool *pgxpool.Pool, _ *sql.DB) (*publication, error) {
		tx, err := pool.Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, patientSQL)
		}
		if err != nil {
			return nil, err
		}
		publish := func(ctx context.Context, e events.Event) error { _, err := events.Publish(ctx, tx, e); return err }
		return ofPgx(tx, publish), nil
	},
	"function": func(ctx context.Context, pool *pgxpool.Pool, _ *sql.DB) (*publication, error) {
		tx, err := pool.Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, patientSQL)
		}
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
		if err == nil {
			_, err = tx.ExecContext(ctx, patientSQL)
		}
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

// publishers are transactions that are open at the same time, and the model of
// what has become of them: which have committed, and in which order they are
// in the log.
type publishers struct {
	d         *database
	db        *sql.DB
	users     []string
	history   int               // sets the names of this history's events apart
	start     []events.Position // by partition
	types     []events.Type
	named     int
	open      []*publication
	committed []*publication
	// projectors fold in turn, each as if it were the owner. The line of the second
	// can be cut.
	projectors []*Projector
	line       *line
	// unsure are the keys of events whose append failed without an answer.
	unsure map[uuid.UUID]bool
	// patience is how long they wait for open transactions.
	patience time.Duration
}

// errNone is no error of any append.
var errNone = errors.New("none")

// newProjector returns a projector that acts as the owner of every partition.
func (ps *publishers) newProjector(t *testing.T, pool *pgxpool.Pool) *Projector {
	p := ps.d.newProjector(t, func(cfg *Config) { cfg.Pool = pool })
	p.open.Patience = ps.patience
	for _, part := range p.partitions {
		part.owned.Store(true)
	}
	return p
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

// draw draws an event: a new one, or a retry of one that somebody published,
// wherever that has got to.
func (ps *publishers) draw(t *rapid.T) events.Event {
	var told []events.Event
	for _, p := range slices.Concat(ps.open, ps.committed) {
		told = append(told, p.events...)
	}
	if len(told) > 0 && rapid.IntRange(0, 4).Draw(t, "again") == 0 {
		return rapid.SampledFrom(told).Draw(t, "which")
	}
	ps.named++
	e := foldtest.DrawEvent(t, fmt.Sprint("e", ps.named), rapid.SampledFrom(ps.types).Draw(t, "type"), ps.users)
	ps.adopt(&e)
	return e
}

// adopt makes an event one of the history.
func (ps *publishers) adopt(e *events.Event) {
	e.Source = fmt.Sprint("publishers ", ps.history)
	if e.Data.ConversationID != "" {
		e.Data.ConversationID += fmt.Sprint(" of ", ps.history)
	}
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

// pick draws one of the open transactions.
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

// fold makes one of the projectors fold a batch. If the other one has moved the
// position, the fence rejects the batch. If its line is cut, the outcome is unknown.
func (ps *publishers) fold(t *rapid.T, projector int, allowed error) {
	p := rapid.SampledFrom(ps.projectors[projector].partitions).Draw(t, "partition")
	p.size.Events = rapid.IntRange(1, 5).Draw(t, "batch")
	_, _, err := p.step(context.Background())
	if err != nil && !notKnown(err) && (allowed == nil || !errors.Is(err, allowed)) {
		t.Fatal(err)
	}
}

// append makes one of the projectors append events and fold them if it can.
// If the line of the projector is cut, the outcome is unknown.
func (ps *publishers) append(t *rapid.T, i int, allowed error) {
	evs := make([]events.Event, rapid.IntRange(1, 3).Draw(t, "events"))
	for i := range evs {
		evs[i] = ps.draw(t)
	}
	switch _, err := ps.projectors[i].Append(context.Background(), evs...); {
	case errors.Is(err, allowed):
		for i := range evs {
			ps.unsure[evs[i].Key()] = true
		}
	case err != nil:
		t.Fatal(err)
	default:
		ps.committed = append(ps.committed, &publication{events: evs})
	}
}

// actions are what can happen at any time.
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
		"append":    func(t *rapid.T) { ps.append(t, rapid.IntRange(0, 1).Draw(t, "projector"), errNone) },
		"append and be cut off": func(t *rapid.T) {
			ps.line.answers.Store(rapid.Int64Range(0, 12).Draw(t, "answers"))
			ps.append(t, 1, errCut)
			ps.line.answers.Store(-1)
		},
		"fold too": func(t *rapid.T) { ps.fold(t, 1, nil) },
		"fold and be cut off": func(t *rapid.T) {
			ps.line.answers.Store(rapid.Int64Range(0, 8).Draw(t, "answers"))
			ps.fold(t, 1, errCut)
			ps.line.answers.Store(-1)
		},
		"crash": func(t *rapid.T) {
			i := rapid.IntRange(0, 1).Draw(t, "projector")
			pool := ps.projectors[i].cfg.Pool
			ps.projectors[i].release()
			ps.projectors[i] = ps.newProjector(tt, pool)
		},
	}
}

// abandon rolls back transactions that a failure has left open, and gives their
// connections back for the next history.
func (ps *publishers) abandon() {
	ps.line.answers.Store(-1)
	for _, p := range ps.projectors {
		p.release()
	}
	for _, p := range ps.open {
		_ = p.rollback(context.Background()) // the failure is what matters
	}
}

// models are what the partitions hold in the end, in their order: every event that
// was committed, once for each partition of its users.
func (ps *publishers) models(t *rapid.T) []foldtest.Model {
	left := map[uuid.UUID]int{}
	for _, p := range ps.committed {
		for _, e := range p.events {
			in := map[int]struct{}{}
			for _, u := range e.Data.UserIDs {
				in[ps.d.projector.cfg.Log.PartitionOf(u)] = struct{}{}
			}
			left[e.Key()] += len(in)
		}
	}
	source := fmt.Sprint("publishers ", ps.history)
	models := make([]foldtest.Model, foldtest.Partitions)
	for partition := range ps.projectors[0].partitions {
		records, err := logread.Folded(context.Background(), ps.d.pool, partition, ps.start[partition], logread.Cursor{Position: events.Position{TransactionID: math.MaxInt64}}, &logread.Size{Events: 1_000_000, Bytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			e, err := events.Decode(r.Payload)
			if err != nil {
				t.Fatal(err)
			}
			if e.Source == source {
				if len(e.Data.UserIDs) > 0 { // others are where the directory said
					left[e.Key()]--
				}
				models[partition].Events = append(models[partition].Events, e)
			}
		}
	}
	for key, n := range left {
		if n != 0 && !ps.unsure[key] {
			t.Fatalf("event %s: %d are missing in the log", key, n)
		}
	}
	return models
}

// Publishers in Go and in SQL have transactions open at the same time, which
// publish, commit in another order than they began in, roll back as a whole or
// in part, and stay open while projectors fold, are fenced off, cut off in the
// middle and crash. What is committed counts once, in the order of the log, and
// nothing else does, to the last version.
func TestConcurrentPublishers(t *testing.T) { testConcurrentPublishers(t, foldtest.PublishedTypes()) }

// The same with rooms, whose messages go to the partitions that have members.
func TestConcurrentPublishersOfRooms(t *testing.T) {
	testConcurrentPublishers(t, append(foldtest.PublishedTypes(),
		events.RoomJoined, events.RoomJoined, events.RoomLeft, events.RoomPosted, events.RoomPosted, events.RoomPosted, events.RoomRecalled))
}

func testConcurrentPublishers(t *testing.T, types []events.Type) {
	d := openDatabase(t, pgtest.Borrow(t).NewDB(t, migrated))
	l := new(line)
	l.answers.Store(-1)
	cuttable := newPool(t, d.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.DialFunc = l.dial })
	db := stdlib.OpenDBFromPool(d.pool)
	t.Cleanup(func() { _ = db.Close() })
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++ // a database is used for all histories, each with users of its own
		ps := &publishers{
			d: d, db: db, line: l, history: n, start: d.positions(t), types: types, unsure: map[uuid.UUID]bool{},
			users: []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)},
		}
		if rapid.Bool().Draw(rt, "patient") {
			ps.patience = time.Hour
		}
		ps.projectors = []*Projector{ps.newProjector(t, d.pool), ps.newProjector(t, cuttable)}
		defer ps.abandon()
		if slices.Contains(types, events.RoomJoined) {
			ps.enter(t)
		}
		rt.Repeat(ps.actions(t))
		for len(ps.open) > 0 {
			ps.end(rt, rapid.IntRange(0, len(ps.open)-1).Draw(rt, "transaction"), rapid.Bool().Draw(rt, "commit"))
		}
		d.fold(t)

		models, tables := ps.models(rt), make([]*badge.State, foldtest.Partitions)
		replays := make([]*storetest.Memory, foldtest.Partitions)
		for p, truth := range models {
			tables[p], replays[p] = d.roomTables(t, p, fmt.Sprint("% of ", n)), storetest.NewMemory()
			for i := range truth.Events {
				replays[p].Commit(rt, truth.Events[i])
			}
		}
		for _, id := range ps.users {
			p := events.PartitionOf(id, foldtest.Partitions)
			truth, u := models[p], tables[p].Users[id]
			if u == nil {
				u = badge.NewUser(id)
			}
			if diff := gocmp.Diff(truth.Describe(id), storetest.DescribeIn(u, tables[p].Rooms)); diff != "" {
				rt.Fatalf("after\n%s%s has (-want +got):\n%s", foldtest.Story(truth.Events), id, diff)
			}
			versions := storetest.Versions(u)
			versions["of clients"] = u.Sums(tables[p].Rooms).Version
			if diff := gocmp.Diff(replays[p].Versions(id), versions); diff != "" {
				rt.Fatalf("after\n%sthe versions of %s are (-one by one +got):\n%s", foldtest.Story(truth.Events), id, diff)
			}
		}
	})
	d.checkSums(t)
}

// enter makes all users members of all rooms for a moment. So the directory has
// their partitions, and no transaction that stays open makes another one wait.
func (ps *publishers) enter(t *testing.T) {
	t.Helper()
	for _, room := range []string{"c1", "c2"} {
		for _, typ := range []events.Type{events.RoomJoined, events.RoomLeft} {
			e := foldtest.Event(fmt.Sprint(typ, " ", room), typ, room, nil, ps.users...)
			ps.adopt(&e)
			ps.d.append(t, e)
			ps.committed = append(ps.committed, &publication{events: []events.Event{e}})
		}
	}
}
