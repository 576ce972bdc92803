package projector

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/projector/archiving"
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

// What is folded while the ranges are looked at is archived with the generation of
// keys that it began.
func TestArchiveWhileKeysRotate(t *testing.T) {
	d, dir := newDatabase(t), t.TempDir()
	p, bob := d.projector.partitions[0], foldtest.User(0, 1)
	mark := foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil, bob)
	d.append(t, foldtest.Deliver("c", 1, bob))
	d.fold(t)
	d.age(t, p)
	d.append(t, mark, foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(1), bob))
	d.cut(t, 0)
	d.awaitVisible(t, 0)

	looking := &onQuery{of: "FROM badged.log_ranges WHERE", do: func() { drain(t, p) }}
	pool := newPool(t, d.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = looking })
	if _, err := d.tryArchive(t.Context(), dir, func(cfg *archiving.Config) { cfg.Pool = pool }); err != nil {
		t.Fatal(err)
	}
	if got := d.lines(t, `SELECT b.events || ' ' || (b.generation = max(g.generation)) FROM badged.baselines AS b JOIN badged.dedup_generations AS g USING (partition_id) WHERE partition_id = 0 GROUP BY b.partition_id`); len(got) != 1 || got[0] != "3 true" {
		t.Errorf("events of the base, and whether it knows the generation: %v", got)
	}
	for range 2 { // the key of mark is still probed in the second, but not if it counted as older
		d.rotate(t, p)
	}
	d.append(t, mark)
	d.fold(t)
	d.checkArchived(t, dir, bob)
}

// A role that archives needs the rights that the documentation names, and not
// those of the owner of the schema, also where ranges were made since.
func TestArchivingRoleNeedNotOwnTheSchema(t *testing.T) {
	server, dir := pgtest.NewServer(t), t.TempDir() // roles belong to all databases of a server
	owner := openDatabase(t, server.NewDB(t, migrated))
	owner.exec(t, `CREATE ROLE "archiving role" LOGIN`)
	owner.exec(t, `GRANT USAGE ON SCHEMA badged TO "archiving role"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA badged TO "archiving role";
GRANT EXECUTE ON FUNCTION badged.create_baseline_tables(integer), badged.drop_baseline_tables(integer), badged.swap_baseline_tables(integer), badged.drop_log_ranges(integer) TO "archiving role"`)
	pool := newPool(t, owner.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.User = "archiving role" })
	ann := foldtest.User(0, 0)
	for seq := range int64(3) {
		owner.append(t, foldtest.Deliver("c", seq+1, ann))
		owner.fold(t)
		owner.cut(t, 0)
		done, err := owner.tryArchive(t.Context(), dir, func(cfg *archiving.Config) { cfg.Pool = pool })
		if err != nil || done[0].Events != 1 || done[0].Dropped == 0 {
			t.Fatalf("archiving says %+v, %v", done, err)
		}
	}
	owner.checkArchived(t, dir, ann)
}
