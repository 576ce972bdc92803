package projector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
)

// beforeCrash and duringCrash are a history of partition 0 in which a batch uses
// everything it can: beforeCrash is folded before the crash, so that there are rows
// to change, and duringCrash by the interrupted batch.
var (
	crashAnn, crashBob, crashCem = foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2)

	beforeCrash = append([]events.Event{
		foldtest.Deliver("c", 1, crashAnn, crashBob), foldtest.Deliver("c", 2, crashAnn), foldtest.Deliver("d", 1, crashBob),
		foldtest.Event("level", events.ConversationLevelSet, "d", foldtest.Level(events.LevelMentions), crashBob),
		foldtest.Event("join", events.RoomJoined, "hall", nil, crashAnn, crashBob),
	}, postEach(1, 128)...) // as many messages with gaps as a room has before it closes a chunk
	duringCrash = append([]events.Event{
		foldtest.Deliver("c", 3, crashAnn, crashBob), foldtest.Deliver("c", 1, crashAnn, crashBob), foldtest.Deliver("new", 1, crashBob),
		foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(2), crashAnn),
		foldtest.Event("mark", events.ConversationMarkedUnread, "d", nil, crashBob),
		foldtest.Event("all", events.UserReadAll, "", nil, crashBob), foldtest.Deliver("new", 2, crashBob),
		foldtest.Event("read hall", events.ConversationRead, "hall", foldtest.UpTo(10), crashAnn),
		foldtest.Event("late join", events.RoomJoined, "hall", foldtest.UpTo(300), crashCem),
		foldtest.Event("recall", events.RoomRecalled, "hall", foldtest.Seq(2*64+1)),
		foldtest.Event("leave", events.RoomLeft, "hall", nil, crashBob),
	}, postEach(129, 160)...)
)

// postEach returns messages of a room, with gaps between their seqs. ann sends some
// of them, and cem is mentioned in some.
func postEach(from, to int64) (posts []events.Event) {
	for i := from; i <= to; i++ {
		posts = append(posts, foldtest.Event(fmt.Sprint("post ", i), events.RoomPosted, "hall", func(d *events.Data) {
			d.Seq, d.SenderID = 2*i+1, crashBob
			switch i % 10 {
			case 3:
				d.SenderID = crashAnn
			case 7:
				d.MentionedUserIDs = []string{crashCem}
			}
		}))
	}
	return posts
}

// startCrashHistory returns a database with the history, folded up to the
// crash.
func startCrashHistory(t *testing.T) *database {
	t.Helper()
	d := newDatabase(t)
	d.append(t, beforeCrash...)
	drain(t, d.projector.partitions[0]) // which has all users
	d.append(t, duringCrash...)
	d.exec(t, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload) VALUES (pg_current_xact_id(), gen_random_uuid(), '{"garbage": true}')`)
	d.awaitSettled(t, 0)
	return d
}

// uninterrupted returns the tables after the history without a crash. They are those
// of the model.
func uninterrupted(t *testing.T) string {
	t.Helper()
	d := startCrashHistory(t)
	drain(t, d.projector.partitions[0])
	truth := foldtest.Model{Events: slices.Concat(beforeCrash, duringCrash)}
	for _, id := range []string{crashAnn, crashBob, crashCem} {
		type numbers struct{ unread, mentions int64 }
		want, got := map[string]numbers{}, map[string]numbers{}
		total := int64(0)
		for name, c := range truth.Conversations(id) {
			if n := (numbers{int64(len(c.Unread)), int64(len(c.Mentions))}); n.unread > 0 {
				want[name] = n
			}
			total += c.Adds(nil).Total
		}
		s := d.snapshot(t, id)
		for _, c := range s.Conversations {
			if c.Unread > 0 {
				got[c.ConversationID] = numbers{c.Unread, c.Mentions}
			}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(numbers{})); diff != "" || s.Total != total {
			t.Errorf("the total of %s is %d, want %d; conversations (-want +got):\n%s", id, s.Total, total, diff)
		}
	}
	return d.dump(t)
}

// fault is a place at which a batch can be interrupted, and the trigger there.
type fault struct{ place, trigger string }

// faults are the places of every batch. The triggers call the function fault.
var faults = []fault{
	{"before the position moves", `BEFORE UPDATE ON badged.events_p00_offsets`},
	{"after the position has moved", `AFTER UPDATE ON badged.events_p00_offsets`},
	{"before the keys are kept", `BEFORE INSERT ON badged.dedup_blocks_p00`},
	{"after the keys are kept", `AFTER INSERT ON badged.dedup_blocks_p00`},
	{"before users are written", `BEFORE INSERT OR UPDATE ON badged.users_p00`},
	{"after users are written", `AFTER INSERT OR UPDATE ON badged.users_p00`},
	{"before conversations are written", `BEFORE INSERT OR UPDATE ON badged.conversations_p00`},
	{"after conversations are written", `AFTER INSERT OR UPDATE ON badged.conversations_p00`},
	{"after rooms are written", `AFTER INSERT OR UPDATE ON badged.rooms_p00`},
	{"after chunks are written", `AFTER INSERT OR UPDATE ON badged.room_chunks_p00`},
	{"after marks are written", `AFTER INSERT ON badged.room_marks_p00`},
	{"before a dead letter is written", `BEFORE INSERT ON badged.dead_letters`},
	{"after a dead letter is written", `AFTER INSERT ON badged.dead_letters`},
	{"in the commit", ``},
}

// The kinds of interruption; 57P01 is the code of a killed session.
var interruptions = []struct{ name, statements, code string }{
	{"error", `RAISE 'interrupted';`, "P0001"},
	{"killed", `PERFORM pg_terminate_backend(pg_backend_pid()); RAISE 'it outlived its end';`, "57P01"},
}

// arm makes the database interrupt the next batch that reaches a place, once.
// A sequence, which rollbacks do not undo, records that it has.
func (d *database) arm(t *testing.T, trigger, interruption string) {
	t.Helper()
	create := `CREATE TRIGGER fault ` + trigger + ` FOR EACH STATEMENT`
	if trigger == "" {
		create = `CREATE CONSTRAINT TRIGGER fault AFTER UPDATE ON badged.events_p00_offsets DEFERRABLE INITIALLY DEFERRED FOR EACH ROW`
	}
	d.exec(t, `CREATE SEQUENCE fired`)
	d.exec(t, `CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('fired') = 1 THEN `+interruption+` END IF;
    RETURN NULL;
END $$`)
	d.exec(t, create+` EXECUTE FUNCTION fault()`)
}

func (d *database) fired(t *testing.T) int {
	t.Helper()
	var n int
	if err := d.pool.QueryRow(t.Context(), `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM fired`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A batch that is interrupted at any place has no effect, and after a retry
// the tables are as without the interruption, versions included.
func TestInterruptedAnywhere(t *testing.T) {
	want := uninterrupted(t)
	for _, f := range faults {
		for _, how := range interruptions {
			t.Run(f.place+"/"+how.name, func(t *testing.T) {
				d := startCrashHistory(t)
				before, position, told := d.dump(t), d.position(t, 0), len(d.projector.updates)
				d.arm(t, f.trigger, how.statements)

				p := d.projector.partitions[0]
				_, _, err := p.step(t.Context())
				var pgErr *pgconn.PgError
				if !errors.As(err, &pgErr) || pgErr.Code != how.code {
					t.Errorf("the batch ended with %v, want %s", err, how.code)
				}
				if n := d.fired(t); n != 1 {
					t.Fatalf("the fault fired %d times, want 1", n)
				}
				if diff := cmp.Diff(before, d.dump(t)); diff != "" || d.position(t, 0) != position {
					t.Errorf("the position was at %v and is at %v; of the batch was kept (-before +after):\n%s", position, d.position(t, 0), diff)
				}

				if len(d.projector.updates) != told {
					t.Error("users are told of what was not kept")
				}

				drain(t, p)
				// New and known rows are written by two statements.
				if n := d.fired(t); n < 2 {
					t.Error("the next try did not come by there")
				}
				if diff := cmp.Diff(want, d.dump(t)); diff != "" {
					t.Errorf("the tables are (-uninterrupted +interrupted):\n%s", diff)
				}
				if n := count(d.projector.metrics.folded); n != len(beforeCrash)+len(duringCrash)-1 {
					t.Errorf("%d events were folded, want %d, one of which came twice", n, len(beforeCrash)+len(duringCrash))
				}
			})
		}
	}
}

// drainAll folds what there is in every partition: each has the room.
func (d *database) drainAll(t *testing.T) {
	t.Helper()
	for _, p := range d.newProjector(t, nil).partitions {
		drain(t, p)
	}
}

// A running projector recovers from every interruption.
func TestRunsOnAfterInterruptions(t *testing.T) {
	whole := startCrashHistory(t)
	whole.drainAll(t)
	want := whole.dump(t)
	for _, how := range interruptions {
		t.Run(how.name, func(t *testing.T) {
			d := startCrashHistory(t)
			d.arm(t, ``, how.statements)
			stop := run(t, d.newProjector(t, nil))
			d.bus.awaitTotal(t, crashBob, 1)
			stop()
			if n := d.fired(t); n != 2 {
				t.Errorf("the fault was met %d times, want 2", n)
			}
			d.drainAll(t) // the other partitions, which the test did not wait for
			if diff := cmp.Diff(want, d.dump(t)); diff != "" {
				t.Errorf("the tables are (-uninterrupted +interrupted):\n%s", diff)
			}
		})
	}
}

// line is a connection to the server that can be cut.
type line struct {
	// answers is how many more reads succeed; negative means no limit.
	answers atomic.Int64
	cut     atomic.Bool
}

var errCut = errors.New("the line was cut")

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return lineConn{conn, l}, nil
}

// lineConn is one connection over a line.
type lineConn struct {
	net.Conn
	line *line
}

// Read drops the answer past the limit after the server has sent it, so the
// command has taken effect.
func (c lineConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.line.answers.Add(-1) == -1 {
		c.line.cut.Store(true)
		return 0, errors.Join(errCut, c.Close())
	}
	return n, err
}

// If its connection breaks, a batch may or may not be committed. Each answer
// in turn is lost until a batch succeeds; the tables are right every time.
func TestAnyAnswerIsLost(t *testing.T) {
	want := uninterrupted(t)
	kept, lost := 0, 0
	for answers := int64(0); ; answers++ {
		through := false
		t.Run(fmt.Sprint("after ", answers), func(t *testing.T) {
			d, l := startCrashHistory(t), new(line)
			l.answers.Store(-1)
			pool := newPool(t, d.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.DialFunc = l.dial })
			p := d.newProjector(t, func(cfg *Config) { cfg.Pool = pool }).partitions[0]
			if err := pool.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := d.position(t, 0)
			l.answers.Store(answers)
			_, _, err := p.step(t.Context())
			l.answers.Store(-1)
			switch moved := d.position(t, 0) != before; {
			case !l.cut.Load():
				if err != nil || !moved {
					t.Fatalf("nothing was cut, but the batch moved: %v, error %v", moved, err)
				}
				through = true
			case !errors.Is(err, errCut):
				t.Errorf("the batch ended with %v", err)
			case moved:
				kept++
			default:
				lost++
			}
			drain(t, p)
			if diff := cmp.Diff(want, d.dump(t)); diff != "" {
				t.Errorf("the tables are (-uninterrupted +cut):\n%s", diff)
			}
			if n := count(p.projector.metrics.fenced); n != 0 {
				t.Errorf("it took itself for another projector %d times", n)
			}
		})
		if through || t.Failed() {
			break
		}
	}
	if kept == 0 || lost == 0 {
		t.Errorf("%d batches were kept and %d lost, want some of each", kept, lost)
	}
}
