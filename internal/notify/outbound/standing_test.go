package outbound_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/notify/outbound"
)

// logReads counts the statements that read the log.
type logReads struct{ atomic.Int64 }

func (r *logReads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	for _, word := range strings.Fields(q.SQL) {
		if strings.HasPrefix(word, "badged.events_p") && !strings.HasSuffix(word, "_offsets") {
			r.Add(1)
			break
		}
	}
	return ctx
}

func (*logReads) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Without targets the position follows the projector, and nothing reads the log.
func TestUsersWithoutTargetsCostNothing(t *testing.T) {
	b := newBench(t)
	var log logReads
	pool := projectortest.NewPool(t, b.URL, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = &log })
	b.start(t, func(cfg *outbound.NotifierConfig) { cfg.Pool = pool })
	ada := foldtest.User(0, 0)
	b.Happen(t, saying("hi", foldtest.Deliver("chat", 1, ada)), foldtest.Deliver("chat", 2, foldtest.User(1, 0)))
	b.awaitRest(t)
	if n := log.Load(); n > 0 {
		t.Errorf("%d statements read the log", n)
	}

	put(t, b.targets, phone(ada, "phone"))
	b.expectSaid(t, "phone: 1")
	b.Happen(t, foldtest.Deliver("chat", 3, ada), foldtest.Deliver("chat", 4, foldtest.User(1, 0)))
	b.expectSaid(t, "phone: 2")
	if log.Load() == 0 {
		t.Error("no statement read the log for the user who has a device")
	}
}

// A new epoch, and what was changed without the log, is told again.
func TestNewEpochIsTold(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	b.Happen(t, foldtest.Deliver("chat", 1, ada))
	put(t, b.targets, phone(ada, "phone"))
	b.expectSaid(t, "phone: 1")
	b.StopFolding()

	// As healing does.
	b.Exec(t, `UPDATE badged.users SET total = 5 WHERE user_id = $1`, ada)
	b.Exec(t, `UPDATE badged.partitions SET revision = revision + 1 WHERE partition_id = 0`)
	b.expectSaid(t, "phone: 5")
	// What is stored of the last push may be lost, so the same number is told too.
	b.Exec(t, `UPDATE badged.partitions SET epoch = 'new' WHERE partition_id = 0`)
	b.expectSaid(t, "phone: 5")
	b.expectSaid(t)
}

// A notifier that falls behind shows in the lag.
func TestLagOfTheNotifier(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	b.expectSaid(t, "phone: 0")
	b.stop()
	before := b.position(t, 0)
	b.Happen(t, foldtest.Deliver("chat", 1, ada), foldtest.Deliver("chat", 1, foldtest.User(1, 0)))
	lags, err := lag.Measure(t.Context(), b.Pool, []int{0, 1}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&before, lags[0].Notifier); diff != "" || lags[1].Notifier != nil {
		t.Errorf("partition 1, without devices: %v; partition 0: %s", lags[1].Notifier, diff)
	}
}

// What was reported before a notifier stops is stored.
func TestStopStoresReports(t *testing.T) {
	b := newBench(t)
	ada := foldtest.User(0, 0)
	put(t, b.targets, phone(ada, "phone"))
	b.notifier.DeviceTold(b.next(t), time.Hour)
	b.stop()
	if d := device(t, b.targets, ada, "phone"); d.Due != nil || d.Told == nil {
		t.Errorf("after a stop: due %v, told %v", d.Due, d.Told)
	}
}
