package expiry

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/pgsession"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const week = 7 * 24 * time.Hour

// appender is a log that does something more.
type appender func(evs ...events.Event) (events.Receipt, error)

func (a appender) Append(_ context.Context, evs ...events.Event) (events.Receipt, error) {
	return a(evs...)
}

// logOf is the log of d as a projector appends to it.
func logOf(t *testing.T, d *projectortest.Database) appender {
	return func(evs ...events.Event) (events.Receipt, error) { return d.Log.AppendOwn(t.Context(), evs...) }
}

// folding is the log of d, where what is appended is folded at once.
func folding(t *testing.T, d *projectortest.Database) appender {
	return func(evs ...events.Event) (events.Receipt, error) {
		receipt, err := logOf(t, d)(evs...)
		d.Fold(t)
		return receipt, err
	}
}

// newExpiry returns a sweeper whose time is noon. It expires chats after a week, and its events
// are folded at once; change may be nil.
func newExpiry(t *testing.T, d *projectortest.Database, change func(*Config)) *Sweeper {
	t.Helper()
	cfg := Config{
		Pool: d.Pool, Log: folding(t, d), Layouts: d.Log, After: map[string]time.Duration{"chat": week},
		Pause: time.Nanosecond,
	}
	if change != nil {
		change(&cfg)
	}
	x, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return at(foldtest.Noon, x)
}

// at makes a sweeper use `now` as the time of the database.
func at(now time.Time, x *Sweeper) *Sweeper {
	x.now = func(context.Context, pgsession.Querier) (time.Time, error) { return now, nil }
	return x
}

// sweep sweeps once.
func sweep(t *testing.T, d *projectortest.Database, x *Sweeper) {
	t.Helper()
	if err := x.once(t.Context(), d.Connect(t)); err != nil {
		t.Fatal(err)
	}
}

// once sweeps once.
func (x *Sweeper) once(ctx context.Context, conn *pgx.Conn) error {
	now, err := x.now(ctx, conn)
	if err != nil {
		return err
	}
	return x.sweep(ctx, conn, now)
}

// expired returns what the events in the log say that sweeps wrote, a line for
// each event.
func expired(t *testing.T, d *projectortest.Database) []string {
	t.Helper()
	var lines []string
	for p := range foldtest.Partitions {
		for _, r := range d.Records(t, p) {
			e, err := events.Decode(r.Payload)
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == events.ConversationExpired && e.Source == "badged/expiry" {
				lines = append(lines, fmt.Sprintf(`%s up to %d for ["%s"]`, e.Data.ConversationID, e.Data.UpToSeq, strings.Join(e.Data.UserIDs, `","`)))
			}
		}
	}
	return lines
}

// unread returns what users have unread: a line for each conversation.
func unread(t *testing.T, d *projectortest.Database) []string {
	t.Helper()
	return d.Lines(t, `SELECT format('%s: %s', conversation_id, CASE WHEN marked_unread THEN 'marked' ELSE unread::text END)
FROM badged.conversations WHERE unread > 0 OR marked_unread ORDER BY conversation_id, user_id`)
}

// progress returns how far sweeps have come: a line for each partition and
// category.
func progress(t *testing.T, d *projectortest.Database) []string {
	t.Helper()
	return d.Lines(t, `SELECT concat_ws(' ', partition_id, category, swept_hour) FROM badged.expiry_progress ORDER BY partition_id, category`)
}

// hourAgo is the hour so long before foldtest.Noon.
func hourAgo(ago time.Duration) string { return fmt.Sprint(badge.HourOf(foldtest.Noon.Add(-ago))) }

// heal heals a user that differs from the log.
func heal(t *testing.T, d *projectortest.Database, user string) {
	t.Helper()
	if _, version, err := replay.NewVerifier(d.Pool, d.Log).Heal(t.Context(), user); version == 0 || err != nil {
		t.Fatalf("healed in version %d, %v", version, err)
	}
}

// chats are n messages, each in a conversation of its own.
func chats(n int, user string) []events.Event {
	evs := make([]events.Event, n)
	for i := range evs {
		evs[i] = foldtest.Deliver(fmt.Sprintf("chat %02d", i), 1, user)
	}
	return evs
}
