package splitting_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/internal/partition/splitting"
)

// On a shard, the map records that a partition was split, and the children move to a shard that
// never had their tables.
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
	a.Append(t, append(foldtest.Nested(users...), foldtest.Deliver("c", 1, users...))...)
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
	all := []moving.Database{{Name: "a", Pool: a.Pool, Log: a.Log}, {Name: "b", Pool: b.Pool, Log: b.Log}}
	for _, p := range []int{8, 4} {
		if _, err := moving.Move(t.Context(), moving.Config{Databases: all, Partition: p, To: "b"}); err != nil {
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

// A backend that publishes into a shard directly finds the children that moved there, even if the
// shard's map does not have the split. The parent gets no events.
func TestPublishToAShardBehindASplitElsewhere(t *testing.T) {
	t.Parallel()
	a, b := projectortest.New(t), projectortest.New(t)
	for name, d := range map[string]*projectortest.Database{"a": a, "b": b} {
		d.Exec(t, `INSERT INTO badged.shard (cluster, name, formed_at) VALUES ('6e6ff15d-6b6c-4a4e-9b0c-3a8a1cf5a6ab', $1, now())`, name)
	}
	a.Exec(t, `SELECT badged.map_partition(p, 'a', 1) FROM generate_series(0, $1 - 1) AS p`, foldtest.Partitions)
	b.Exec(t, `SELECT badged.release_partition(p, 'a', 1) FROM generate_series(0, $1 - 1) AS p`, foldtest.Partitions)
	before, err := events.Open(t.Context(), b.Pool) // knows no split
	if err != nil {
		t.Fatal(err)
	}
	a.Fold(t)
	split(t, a, 0)
	if _, err := moving.Move(t.Context(), moving.Config{Databases: []moving.Database{{Name: "a", Pool: a.Pool, Log: a.Log}, {Name: "b", Pool: b.Pool, Log: b.Log}}, Partition: 8, To: "b"}); err != nil {
		t.Fatal(err)
	}
	if got := b.Lines(t, `SELECT concat_ws(' ', partition_id, nullif(shard, ''), revision) FROM badged.shard_partitions WHERE partition_id IN (0, 4, 8) ORDER BY partition_id`); fmt.Sprint(got) != "[0 2 4 a 1 8 b 2]" {
		t.Errorf("the map of b has %v", got)
	}
	if err := a.Log.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	mine, other := "", "" // users of partitions 8 and 4
	for n := range 50 {
		if u := foldtest.User(0, n); a.Log.PartitionOf(u) == 8 {
			mine = u
		} else {
			other = u
		}
	}
	n := 0
	publish := func(l *events.Log, user string) map[string]error {
		in := func(f func(tx pgx.Tx) error) error { return pgx.BeginFunc(t.Context(), b.Pool, f) }
		n++
		_, appended := l.Append(t.Context(), foldtest.Deliver(fmt.Sprintf("append%d", n), 1, user))
		return map[string]error{
			"Log.Append": appended,
			"Log.Publish": in(func(tx pgx.Tx) error {
				_, err := l.Publish(t.Context(), tx, foldtest.Deliver(fmt.Sprintf("log%d", n), 1, user))
				return err
			}),
			"Publish": in(func(tx pgx.Tx) error {
				_, err := events.Publish(t.Context(), tx, foldtest.Deliver(fmt.Sprintf("tx%d", n), 1, user))
				return err
			}),
			"badged.publish": in(func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `SELECT badged.publish(jsonb_build_object('specversion', '1.0', 'id', $1::text, 'source', 'sql', 'type', 'message.delivered',
					'data', jsonb_build_object('conversation_id', $1::text, 'seq', 1, 'user_ids', jsonb_build_array($2::text))))`, fmt.Sprintf("sql%d", n), user)
				return err
			}),
		}
	}
	// The second has the map as a mover left it that was older: without the split.
	for _, sql := range []string{`SELECT`, `DELETE FROM badged.shard_partitions WHERE partition_id = 4`, `UPDATE badged.shard_partitions SET shard = 'a', revision = 1 WHERE partition_id = 0`} {
		b.Exec(t, sql)
		after, err := events.Open(t.Context(), b.Pool)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []*events.Log{before, after} {
			for how, err := range publish(l, other) {
				if pg, ok := errors.AsType[*pgconn.PgError](err); !errors.Is(err, events.ErrNotHeld) && (!ok || pg.Code != "BD100") {
					t.Errorf("%s: %s for a user of another shard gives %v", sql, how, err)
				}
			}
			for how, err := range publish(l, mine) {
				if err != nil {
					t.Errorf("%s: %s for a user of the shard: %v", sql, how, err)
				}
			}
		}
	}
	if got := b.Lines(t, `SELECT uuid::text FROM badged.events_p00`); len(got) > 0 {
		t.Errorf("the partition that has ended has %d events", len(got))
	}
	if got := b.Lines(t, `SELECT uuid::text FROM badged.events_p08`); len(got) != 6*4 {
		t.Errorf("the partition has %d events, want %d", len(got), 6*4)
	}
}
