package archiving_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/archiving"
)

// onQuery does something just before the first statement that holds a text.
type onQuery struct {
	of string
	do func()
}

func (q *onQuery) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if q.do != nil && strings.Contains(data.SQL, q.of) {
		do := q.do
		q.do = nil
		do()
	}
	return ctx
}

func (q *onQuery) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Events that are folded while the ranges are read are archived with the generation of event keys
// that begins meanwhile.
func TestArchiveWhileKeysRotate(t *testing.T) {
	d, dir := projectortest.New(t), t.TempDir()
	bob := foldtest.User(0, 1)
	mark := foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil, bob)
	d.Append(t, foldtest.Deliver("c", 1, bob))
	d.Fold(t)
	d.StopFolding() // else its poll may fold the two before the generation begins
	d.Append(t, mark, foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(1), bob))
	d.EndRange(t, 0)

	looking := &onQuery{of: "FROM badged.log_ranges WHERE", do: func() {
		d.BeginGeneration(t, 0)
		d.Fold(t)
	}}
	pool := projectortest.NewPool(t, d.URL, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = looking })
	if _, err := tryArchive(t.Context(), d, dir, func(cfg *archiving.Config) { cfg.Pool = pool }); err != nil {
		t.Fatal(err)
	}
	if got := d.Lines(t, `SELECT b.events || ' ' || (b.generation = max(g.generation)) FROM badged.baselines AS b JOIN badged.dedup_generations AS g USING (partition_id) WHERE partition_id = 0 GROUP BY b.partition_id`); len(got) != 1 || got[0] != "3 true" {
		t.Errorf("events of the base, and whether it knows the generation: %v", got)
	}
	for range 2 { // the key of mark is still probed in the second, but not if it counted as older
		d.BeginGeneration(t, 0)
	}
	d.Append(t, mark)
	d.Fold(t)
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, bob)
}

// A role archives with the rights that the documentation names, also ranges that
// were added later.
func TestArchivingRoleNeedNotOwnTheSchema(t *testing.T) {
	d, dir := projectortest.Open(t, pgtest.NewServer(t).NewDB(t, projectortest.Migrated())), t.TempDir()
	pool := d.AsRole(t, `GRANT USAGE ON SCHEMA badged TO ROLE`, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA badged TO ROLE`,
		`GRANT EXECUTE ON FUNCTION badged.create_baseline_tables(integer), badged.drop_baseline_tables(integer), badged.swap_baseline_tables(integer), badged.drop_log_ranges(integer) TO ROLE`)
	ann := foldtest.User(0, 0)
	for seq := range int64(3) {
		d.Append(t, foldtest.Deliver("c", seq+1, ann))
		d.Fold(t)
		d.EndRange(t, 0)
		done, err := tryArchive(t.Context(), d, dir, func(cfg *archiving.Config) { cfg.Pool = pool })
		if err != nil || done[0].Events != 1 || done[0].Dropped == 0 {
			t.Fatalf("archiving says %+v, %v", done, err)
		}
	}
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann)
}
