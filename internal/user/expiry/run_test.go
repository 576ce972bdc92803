package expiry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/pg/dbclock"
	"github.com/badged/badged/internal/pg/pgsession"
)

// Nothing expires and no level ends while the clocks differ: it is not known which is right.
func TestNothingExpiresWhileClocksDiffer(t *testing.T) {
	d := projectortest.New(t)
	d.AppendAgo(t, 2*week, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	d.Fold(t)
	x, conn, next := newExpiry(t, d, nil), d.Connect(t), time.Time{}
	x.now = func(context.Context, pgsession.Querier) (time.Time, error) {
		return foldtest.Noon, &dbclock.DifferError{Ahead: time.Hour}
	}
	var differ *dbclock.DifferError
	if err := x.work(t.Context(), conn, &next); !errors.As(err, &differ) || len(unread(t, d)) != 1 || !next.IsZero() {
		t.Errorf("while clocks differ: %v, unread %v, next %s", err, unread(t, d), next)
	}
	if err := at(foldtest.Noon, x).work(t.Context(), conn, &next); err != nil || len(unread(t, d)) != 0 || next.IsZero() {
		t.Errorf("once they agree: %v, unread %v, next %s", err, unread(t, d), next)
	}
}

// Two concurrent sweeps without the lock expire the same as one.
func TestTwoSweepersAtOnce(t *testing.T) {
	d := projectortest.New(t)
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(1, 0)}
	for i := range 30 {
		d.AppendAgo(t, 2*week, foldtest.Deliver(fmt.Sprint("team ", i), 1, users...))
	}
	d.Fold(t)
	d.StopFolding()
	p := d.Start(t, nil)
	var wg sync.WaitGroup
	for i := range 2 {
		x, conn := newExpiry(t, d, func(cfg *Config) { cfg.Log, cfg.BatchSize = waking{d.Log, p}, 7+i }), d.Connect(t)
		wg.Go(func() {
			if err := x.once(t.Context(), conn); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	projectortest.Same(t, "still unread", []string{}, unread(t, d))
	for _, user := range users {
		if b := d.Badge(t, user); b.Total != 0 || b.Version != 60 {
			t.Errorf("%s has %d at version %d, want 0 at 60", user, b.Total, b.Version)
		}
	}
}

// waking is a log that wakes the projector after each append.
type waking struct {
	log       *events.Log
	projector *projectortest.Running
}

func (w waking) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	receipt, err := w.log.AppendOwn(ctx, evs...)
	for _, p := range receipt.Partitions {
		w.projector.Wake(p)
	}
	return receipt, err
}

const (
	sweepsHere = "this instance runs the expiry sweep"
	swept      = "expiry sweep finished"
)

// startExpiry runs an expiry sweep until the test ends or stop is called.
func startExpiry(t *testing.T, d *projectortest.Database, change func(*Config)) (log *projectortest.LogRecorder, stop func()) {
	t.Helper()
	log = projectortest.NewLogRecorder()
	x := newExpiry(t, d, func(cfg *Config) {
		cfg.Logger, cfg.Interval, cfg.StandbyInterval = log.Logger(), time.Hour, 10*time.Millisecond
		if change != nil {
			change(cfg)
		}
	})
	return log, projectortest.Run(t, x.Run)
}

const expiryLocksSQL = `SELECT pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND classid = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// One instance sweeps. When it stops, another takes over and sweeps at once. When that one is
// killed, the next takes over.
func TestOneInstanceSweeps(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(1, 0)
	d.AppendAgo(t, week+time.Hour, foldtest.Deliver("c", 1, ann))
	d.Fold(t)
	first, stopFirst := startExpiry(t, d, nil)
	first.Await(t, sweepsHere)
	first.Await(t, swept)
	projectortest.Same(t, "still unread", []string{}, unread(t, d))

	var shut atomic.Bool // the network of the second
	second, _ := startExpiry(t, d, func(cfg *Config) {
		cfg.Pool = projectortest.NewPool(t, d.URL, func(cfg *pgxpool.Config) {
			dial := cfg.ConnConfig.DialFunc
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				if shut.Load() {
					return nil, errors.New("the network is down")
				}
				return dial(ctx, network, address)
			}
		})
	})
	d.AppendAgo(t, week+time.Hour, foldtest.Deliver("c", 2, ann))
	d.Fold(t)
	projectortest.Same(t, "unread while the first waits", []string{"c: 1"}, unread(t, d))
	stopFirst()
	second.Await(t, sweepsHere)
	second.Await(t, swept)
	projectortest.Same(t, "still unread", []string{}, unread(t, d))

	third, _ := startExpiry(t, d, nil)
	d.AppendAgo(t, week+time.Hour, foldtest.Deliver("c", 3, ann))
	d.Fold(t)
	shut.Store(true) // or it might be back before the third has looked
	projectortest.Same(t, "sessions killed", []string{"true"},
		d.Lines(t, `SELECT pg_terminate_backend(pid)::text FROM (`+expiryLocksSQL+`) AS holder`, lockClass))
	third.Await(t, sweepsHere)
	shut.Store(false)
	third.Await(t, swept)
	projectortest.Same(t, "still unread", []string{}, unread(t, d))
	if n := len(d.Lines(t, `SELECT pid::text FROM (`+expiryLocksSQL+`) AS holder`, lockClass)); n != 1 {
		t.Errorf("%d sessions hold the lock", n)
	}
}

// A sweeper that loses its session logs that, reconnects and continues.
func TestExpiryComesBack(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(1, 0)
	metrics := NewMetrics(nil)
	log, _ := startExpiry(t, d, func(cfg *Config) { cfg.Interval, cfg.Metrics = time.Millisecond, metrics })
	log.Await(t, swept)
	d.Lines(t, `SELECT pg_terminate_backend(pid)::text FROM (`+expiryLocksSQL+`) AS holder`, lockClass)
	log.Await(t, "the expiry session ended, will try again")
	if n := projectortest.Count(metrics.failed); n != 1 {
		t.Errorf("%d failures are counted, want 1", n)
	}
	log.Await(t, sweepsHere)
	d.Append(t, foldtest.Deliver("c", 1, ann)) // long after noon: never stale
	log.Await(t, swept)
	if got := expired(t, d); len(got) != 0 {
		t.Errorf("expired %v", got)
	}
}

// With any history and changes of limits, a sweep expires all stale conversations, and a replay
// reproduces the tables, including the hours of deliveries.
func TestSweepsAreCompleteAndInTheLog(t *testing.T) {
	d := projectortest.New(t)
	conn := d.Connect(t)
	n, ago := 0, time.Duration(0)
	rapid.Check(t, func(rt *rapid.T) {
		n++
		history := foldtest.DrawHistory(rt, foldtest.EveryType(), []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)})
		for i := range history {
			history[i].Source = fmt.Sprint("history ", n)
			ago -= time.Duration(rapid.IntRange(0, 400).Draw(rt, "minutes later")) * time.Minute
			d.AppendAgo(t, ago, history[i])
			if rapid.IntRange(0, 4).Draw(rt, "sweep") > 0 {
				continue
			}
			d.Fold(t)
			now, limit := foldtest.Noon.Add(-ago), func(category string) time.Duration {
				return time.Duration(rapid.IntRange(1, 48).Draw(rt, category)) * time.Hour
			}
			chat, others := limit("chat"), limit("others")
			x := newExpiry(t, d, func(cfg *Config) {
				cfg.After = map[string]time.Duration{"chat": chat, "*": others}
			})
			x.pageSize = rapid.IntRange(1, 5).Draw(rt, "page")
			if err := at(now, x).once(t.Context(), conn); err != nil {
				rt.Fatal(err)
			}
			if left := d.Lines(t, `SELECT user_id || ' ' || conversation_id FROM badged.conversations
WHERE (unread > 0 OR marked_unread) AND last_seq + read_seq > 0 AND delivered_hour < CASE category WHEN 'chat' THEN $1::bigint ELSE $2::bigint END`,
				badge.HourOf(now.Add(-chat)), badge.HourOf(now.Add(-others))); len(left) > 0 {
				rt.Fatalf("a sweep has left %v", left)
			}
		}
		d.Fold(t)
	})
	if len(expired(t, d)) == 0 {
		t.Fatal("nothing expired, so that nothing is shown")
	}
	d.AppendAgo(t, ago, foldtest.Deliver("last", 1, "dan")) // the sums count what is unread, and the last sweep may have left nothing
	d.Fold(t)
	replaytest.Verify(t, d.Pool, d.Log)
}

// Among many conversations a sweep reads by index only those of the hours to sweep.
func TestStaleConversationsAreFoundByIndex(t *testing.T) {
	d := projectortest.New(t)
	conn := d.Connect(t)
	d.Exec(t, `INSERT INTO badged.conversations_p00 (partition_id, version, read_seq, last_seq, unread, mentions, level, marked_unread,
    user_id, conversation_id, category, unread_set, delivered_hour)
SELECT 0, 1, CASE WHEN n % 2 = 0 THEN 1 ELSE 0 END, 1, n % 2, 0, 'all', false,
    'user-' || n % 1000, 'conversation-' || n, (ARRAY['chat', 'likes', 'system'])[1 + n % 3],
    CASE WHEN n % 2 = 1 THEN '\x000100'::bytea END, n / 10
FROM generate_series(1, 60000) AS n`)
	for _, statistics := range []string{"no", "ANALYZE badged.conversations_p00"} {
		if statistics != "no" {
			d.Exec(t, statistics)
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			t.Run(statistics+" statistics/"+mode, func(t *testing.T) {
				for _, sql := range []string{
					`DEALLOCATE ALL`, `SET plan_cache_mode = ` + mode,
					`PREPARE stale (text, integer, integer, text, text, bigint) AS ` + statements.Of(0, "find stale conversations"),
					`PREPARE categories AS ` + statements.Of(0, "list the categories"),
				} {
					pgtest.Exec(t, conn, sql, pgx.QueryExecModeSimpleProtocol)
				}
				plan := explain(t, conn, `EXECUTE stale ('likes', 3000, 2990, '', '', 10000)`)
				for want, there := range map[string]bool{
					"conversations_p00_category_delivered_hour_idx": true, "delivered_hour >= ": true, "delivered_hour < ": true,
					"Rows Removed by Filter: 17": true, "Seq Scan": false,
				} {
					if strings.Contains(plan, want) != there {
						t.Errorf("that the plan has %q is %v:\n%s", want, !there, plan)
					}
				}
				plan = explain(t, conn, `EXECUTE categories`)
				if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Sort") || !strings.Contains(plan, "conversations_p00_category_delivered_hour_idx") || !strings.Contains(plan, "rooms_p00_category_delivered_hour_idx") {
					t.Errorf("categories are not found by index:\n%s", plan)
				}
			})
		}
	}
}

func explain(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS off, TIMING off) `+sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
