package projector

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/projector/expiry"
	"github.com/badged/badged/projector/internal/badge"
)

// noon is the time of the sweeps in these tests, in the middle of an hour.
var noon = time.Date(2026, 3, 10, 12, 30, 0, 0, time.UTC)

const week = 7 * 24 * time.Hour

// appender is a log that does something more.
type appender func(evs ...events.Event) (events.Receipt, error)

func (a appender) Append(_ context.Context, evs ...events.Event) (events.Receipt, error) {
	return a(evs...)
}

// folding is the log of d, where what is appended is folded at once.
func (d *database) folding(t *testing.T) appender {
	return func(evs ...events.Event) (events.Receipt, error) {
		receipt, err := d.log.Append(t.Context(), evs...)
		d.fold(t)
		return receipt, err
	}
}

// newExpiry returns a sweep at noon of chats of a week, whose events are folded
// at once; change may be nil.
func (d *database) newExpiry(t *testing.T, change func(*expiry.Config)) *expiry.Sweeper {
	t.Helper()
	cfg := expiry.Config{
		Pool: d.pool, Log: d.folding(t), Partitions: foldtest.Partitions, After: map[string]time.Duration{"chat": week},
		Now: func() time.Time { return noon }, Pause: time.Nanosecond,
	}
	if change != nil {
		change(&cfg)
	}
	x, err := expiry.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// sweep sweeps once.
func (d *database) sweep(t *testing.T, x *expiry.Sweeper) {
	t.Helper()
	if err := x.Sweep(t.Context(), d.connect(t)); err != nil {
		t.Fatal(err)
	}
}

func (d *database) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), d.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// appendAgo appends events as if so long before foldtest.Noon, in the order of the log
// all the same.
func (d *database) appendAgo(t *testing.T, ago time.Duration, evs ...events.Event) {
	t.Helper()
	receipt := d.append(t, evs...)
	for _, p := range receipt.Partitions {
		d.exec(t, `UPDATE badged.`+events.Topic(p)+` SET created_at = $1 WHERE transaction_id = $2::bigint::text::xid8`,
			foldtest.Noon.Add(-ago), receipt.TransactionID)
	}
}

// expired returns what the events in the log say that sweeps wrote, a line for
// each row.
func (d *database) expired(t *testing.T) []string {
	t.Helper()
	var lines []string
	for p := range foldtest.Partitions {
		lines = append(lines, d.lines(t, `SELECT format('%s up to %s for %s', data ->> 'conversation_id', data ->> 'up_to_seq', data ->> 'user_ids')
FROM (SELECT payload -> 'data' AS data, transaction_id, "offset" FROM badged.`+events.Topic(p)+`
      WHERE payload ->> 'type' = 'conversation.expired' AND payload ->> 'source' = 'badged/expiry') AS expired
ORDER BY transaction_id, "offset"`)...)
	}
	return lines
}

// unread returns what users have unread: a line for each conversation.
func (d *database) unread(t *testing.T) []string {
	t.Helper()
	return d.lines(t, `SELECT format('%s: %s', conversation_id, CASE WHEN marked_unread THEN 'marked' ELSE unread::text END)
FROM badged.conversations WHERE unread > 0 OR marked_unread ORDER BY conversation_id, user_id`)
}

// progress returns how far sweeps have come: a line for each partition and
// category.
func (d *database) progress(t *testing.T) []string {
	t.Helper()
	return d.lines(t, `SELECT concat_ws(' ', partition_id, category, swept_hour) FROM badged.expiry_progress ORDER BY partition_id, category`)
}

// hourAgo is the hour so long before foldtest.Noon.
func hourAgo(ago time.Duration) string { return fmt.Sprint(badge.HourOf(foldtest.Noon.Add(-ago))) }

// same fails the test where two lists differ.
func same(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
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
