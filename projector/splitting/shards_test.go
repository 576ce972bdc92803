package splitting_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/projector/moving"
	"github.com/badged/badged/projector/splitting"
)

// On a shard, the map says that a partition was split, and those that came from it move to
// a shard that never had their tables.
func TestSplitOnAShardAndMove(t *testing.T) {
	t.Parallel()
	const cluster = `INSERT INTO badged.shard (cluster, name, formed_at) VALUES ('6e6ff15d-6b6c-4a4e-9b0c-3a8a1cf5a6ab', $1, now())`
	a, b := projectortest.New(t), projectortest.New(t)
	a.Exec(t, cluster, "a")
	b.Exec(t, cluster, "b")
	a.Exec(t, `SELECT badged.map_partition(p, 'a', 1) FROM generate_series(0, $1 - 1) AS p`, foldtest.Partitions)
	b.Exec(t, `SELECT badged.release_partition(p, 'a', 1) FROM generate_series(0, $1 - 1) AS p`, foldtest.Partitions)
	var users []string
	for n := range 20 {
		users = append(users, foldtest.User(0, n))
	}
	a.Append(t, foldtest.Deliver("c", 1, users...))
	a.Exec(t, `INSERT INTO badged.revocations (user_id, seq, revoked_before, ended_at) SELECT u, 1, now(), now() FROM unnest($1::text[]) AS u`, users)
	a.Fold(t)
	a.StopFolding()
	before := states(t, a)
	if _, err := splitting.Split(t.Context(), splitting.Config{Pool: b.Pool, Log: b.Log, Partition: 0}); !errors.Is(err, splitting.ErrElsewhere) {
		t.Errorf("splitting a partition of another shard gives %v", err)
	}
	split(t, a, 0)
	if got := a.Lines(t, `SELECT concat_ws(' ', partition_id, nullif(shard, ''), revision) FROM badged.shard_partitions WHERE partition_id NOT IN (1, 2, 3) ORDER BY partition_id`); fmt.Sprint(got) != "[0 2 4 a 1 8 a 1]" {
		t.Errorf("the map has %v", got)
	}
	all := []moving.Shard{{Name: "a", Pool: a.Pool, Log: a.Log}, {Name: "b", Pool: b.Pool, Log: b.Log}}
	for _, p := range []int{8, 4} {
		if _, err := moving.Move(t.Context(), moving.Config{Shards: all, Partition: p, To: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := states(t, b); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("after the move users see\n%v\nwant\n%v", got, before)
	}
	verify(t, b)
	if got := b.Lines(t, `SELECT user_id FROM badged.revocations`); len(got) != len(users) {
		t.Errorf("tokens of %d users are revoked, want %d", len(got), len(users))
	}
	split(t, b, 4)
	verify(t, b)
	b.Exec(t, fmt.Sprintf(`SELECT badged.publish('{"specversion":"1.0","id":"x","source":"sql","type":"message.delivered","data":{"conversation_id":"c","seq":2,"user_ids":["%s","%s"]}}')`, users[0], users[1]))
}
