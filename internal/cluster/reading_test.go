package cluster_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/pubsub"
)

// If a partition is split during a read of its states, the read continues in the new partitions.
// Later reads of the old number read there, too.
func TestStatesAreReadWhileTheirPartitionIsSplit(t *testing.T) {
	all := databases(t, "")
	c := open(t, all)
	r := cluster.NewReader(c)
	pool := again(t, all)[0].Pool
	exec := func(q interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	}, sql string, args ...any,
	) {
		t.Helper()
		if _, err := q.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var held []pubsub.Held
	for n := 0; len(held) < 8; n++ {
		if user := fmt.Sprint("user", n); c.PartitionOf(user) == 0 {
			held = append(held, pubsub.Held{UserID: user})
			exec(pool, `INSERT INTO badged.users (version, total, mentions, partition_id, user_id, categories) VALUES (7, $1, 0, 0, $2, '{}')`, n, user)
		}
	}
	want, err := r.States(t.Context(), 0, held)
	if err != nil {
		t.Fatal(err)
	}
	exec(pool, `SELECT badged.create_partition(6), badged.create_partition(12)`)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec(tx, `LOCK TABLE badged.partitions`)
	type result struct {
		states []pubsub.Snapshot
		err    error
	}
	read := make(chan result, 1)
	go func() {
		states, err := r.States(t.Context(), 0, held)
		read <- result{states, err}
	}()
	projectortest.Until(t, "the read waits for the switch", func() bool {
		var waits bool
		if err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE relation = 'badged.partitions'::regclass AND NOT granted AND query LIKE '%users_p00%')`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	exec(tx, `UPDATE badged.users SET partition_id = CASE badged.partition_of(user_id, 12) WHEN 0 THEN 6 ELSE 12 END`)
	exec(tx, `SELECT badged.split_partition(0, '{6,12}')`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := <-read
	if diff := cmp.Diff(want, got.states); diff != "" || got.err != nil {
		t.Errorf("a read that met the split: %v (-want +got)\n%s", got.err, diff)
	}
	later, err := r.States(t.Context(), 0, held)
	if diff := cmp.Diff(want, later); diff != "" || err != nil {
		t.Errorf("a read after the split: %v (-want +got)\n%s", err, diff)
	}
}
