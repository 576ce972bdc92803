package cluster_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// A shard was restored to a time before a partition moved away, and a backend publishes to it in
// its own transactions. A process starts, makes the shard release the partition, and appends each
// event once to the shard of the map.
func TestARestoredShardGivesUpWhatHasMoved(t *testing.T) {
	t.Parallel()
	all := databases(t, "a", "b")
	form(t, all)
	a, b := all[0], all[1]
	user := userOf(t, 0)
	exec(t, a, `INSERT INTO badged.events_p00 (uuid, payload, created_at) VALUES (gen_random_uuid(), 'before the move', now() - interval '1 hour')`)
	move(t, a, b, 0, 2)
	// The state before the move.
	exec(t, a, `UPDATE badged.shard_partitions SET shard = 'a', revision = 1 WHERE partition_id = 0`)
	exec(t, a, `INSERT INTO badged.partitions (partition_id, epoch, incarnation) VALUES (0, 'x', 'y')`)
	exec(t, a, `DROP TRIGGER not_held ON badged.events_p00`)
	publish := func(id string) error {
		return pgx.BeginFunc(t.Context(), a.Pool, func(tx pgx.Tx) error {
			_, err := events.Publish(t.Context(), tx, delivered(id, user))
			return err
		})
	}
	for _, id := range []string{"1", "2"} {
		if err := publish(id); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, a, `SELECT badged.publish(jsonb_build_object('specversion', '1.0', 'id', 'join', 'source', 'sql', 'type', 'room.joined',
		'data', jsonb_build_object('conversation_id', 'lobby', 'user_ids', jsonb_build_array($1::text))))`, user)
	keys := func(d cluster.Candidate) []string {
		rows, _ := d.Pool.Query(t.Context(), `SELECT uuid::text || own || events || coalesce(convert_from(payload, 'UTF8'), '') FROM badged.events_p00 WHERE created_at > now() - interval '50 minutes' ORDER BY created_at`)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	want := keys(a)
	if len(want) != 3 {
		t.Fatalf("the restored shard has %q", want)
	}

	for range 3 { // processes
		c, err := cluster.Open(t.Context(), cluster.Config{Databases: again(t, all), Interval: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		projectortest.Run(t, c.Run)
		projectortest.Run(t, c.SettleRestored)
	}
	projectortest.Until(t, "the events on the other shard", func() bool { return len(keys(b)) >= len(want) })
	projectortest.Until(t, "the end", func() bool {
		return read(t.Context(), t, a, `SELECT count(*)::text FROM badged.stale_partitions`) == "0"
	})
	if got := keys(b); !slices.Equal(got, want) {
		t.Errorf("the other shard has\n%q\nwant\n%q", got, want)
	}
	if err := publish("3"); !errors.Is(err, events.ErrNotHeld) {
		t.Errorf("publishing to the restored shard gives %v", err)
	}
	// `badged partition list` names the command that deletes the old rows.
	if got := read(t.Context(), t, a, `SELECT concat_ws(' ', role, source, target, state) FROM badged.moves WHERE partition_id = 0`); got != "source a b released" {
		t.Errorf("the move is %q", got)
	}
}

// A shard releases a partition only to a shard that holds it at a later revision.
func TestAShardGivesUpNothingElse(t *testing.T) {
	t.Parallel()
	all := databases(t, "a", "b")
	form(t, all)
	for _, revision := range []int{0, 1} {
		if got := read(t.Context(), t, all[0], `SELECT badged.give_up_partition(0, 'b', $1, now())::text`, revision); got != "false" {
			t.Errorf("revision %d: %s", revision, got)
		}
	}
	if got := read(t.Context(), t, all[0], `SELECT badged.give_up_partition(0, 'a', 2, now())::text`); got != "false" {
		t.Errorf("to itself: %s", got)
	}
	if got := read(t.Context(), t, all[1], `SELECT badged.give_up_partition(0, 'a', 2, now())::text`); got != "false" {
		t.Errorf("what it does not hold: %s", got)
	}
	exec(t, all[1], `SELECT badged.map_partition(0, 'b', 2)`) // b does not hold it
	_ = refuses(t, cluster.ErrClaims, all)
}
