package moving_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/internal/partition/splitting"
)

// A move leaves old rows on a shard; then the partition is moved again and split. List and Move
// name the command that deletes the old rows. The command also moves the revocations of tokens on
// this shard.
func TestOldRowsOfAPartitionThatWasSplit(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	c := newTarget(t, "c")
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2)}
	a.Append(t, foldtest.Deliver("c", 1, users...))
	a.Fold(t)
	a.Exec(t, `CREATE FUNCTION refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON badged.users_p00 FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncate()`)
	all := append(config(a, b, 0, "").Databases, moving.Database{Name: "c", Pool: c.Pool, Log: c.Log})
	on := func(to string) moving.Config {
		return moving.Config{Databases: slices.Clone(all), Partition: 0, To: to}
	}
	if _, err := moving.Move(t.Context(), on("b")); err == nil || !strings.Contains(err.Error(), "could not be deleted from a") {
		t.Fatalf("the move ended with %v", err)
	}
	move(t, on("c"))
	a.Exec(t, `INSERT INTO badged.revocations (user_id, seq, revoked_before, ended_at) VALUES ($1, 1, now(), now())`, users[0])
	listed := func(want ...moving.Partition) {
		t.Helper()
		living := []int{1, 2, 3, 4, 8}
		for range all {
			list, err := moving.List(t.Context(), all, living, func(int) string { return "c" }, time.Minute)
			if err != nil || len(list) < len(living) {
				t.Fatalf("%v: %v", list, err)
			}
			if got := list[len(living):]; !slices.Equal(got, want) {
				t.Errorf("old rows are listed as %+v, want %+v", got, want)
			}
			all = append(all[1:], all[0])
		}
	}
	c.StopFolding()
	if _, err := splitting.Split(t.Context(), splitting.Config{Pool: c.Pool, Log: c.Log, Partition: 0}); err != nil {
		t.Fatal(err)
	}
	before := c.Lines(t, `SELECT to_jsonb(b)::text FROM badged.badges AS b ORDER BY user_id`)
	listed(moving.Partition{Partition: 0, Shard: "a", State: moving.OldRows, To: "b"})
	if _, err := moving.Move(t.Context(), on("a")); !errors.Is(err, moving.ErrWasSplit) || !strings.Contains(err.Error(), "`badged partition move 0 --to b` deletes them") {
		t.Errorf("moving it to where the old rows are gives %v", err)
	}
	if _, err := moving.Move(t.Context(), on("b")); err == nil || !strings.Contains(err.Error(), "partition 0 was split, but its old rows could not be deleted from a: run the command again") {
		t.Errorf("cleaning up ends with %v", err)
	}
	a.Exec(t, `DROP TRIGGER refuse_truncate ON badged.users_p00`)
	if r := move(t, on("b")); !r.Split || !r.Resumed || r.From != "a" {
		t.Errorf("cleaning up gives %+v", r)
	}
	listed()
	if _, err := moving.Move(t.Context(), on("b")); !errors.Is(err, moving.ErrWasSplit) || !strings.Contains(err.Error(), fmt.Sprintf("move %d and %d instead; no other shard than b has old rows of partition 0", foldtest.Partitions, 2*foldtest.Partitions)) {
		t.Errorf("once more it gives %v", err)
	}
	for name, d := range map[string]interface {
		Lines(testing.TB, string, ...any) []string
	}{"a": a, "b": b} {
		if left := d.Lines(t, `SELECT user_id FROM badged.users_p00 UNION ALL SELECT uuid::text FROM badged.events_p00 UNION ALL SELECT partition_id::text FROM badged.moves`); len(left) > 0 {
			t.Errorf("%s still has %v", name, left)
		}
	}
	if left, got := a.Lines(t, `SELECT user_id FROM badged.revocations`), b.Lines(t, `SELECT user_id FROM badged.revocations`); len(left) > 0 || !slices.Equal(got, users[:1]) {
		t.Errorf("tokens of %v are revoked on a, and of %v on b", left, got)
	}
	if got := c.Lines(t, `SELECT to_jsonb(b)::text FROM badged.badges AS b ORDER BY user_id`); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the badges are\n%v\nwant\n%v", got, before)
	}
	for _, p := range []int{4, 8} {
		verify(t, c, p)
	}
}

// List shows interrupted splits, and old rows after the switch of a split.
func TestListedSplits(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	a.StopFolding()
	all := config(a, b, 0, "").Databases
	refuse := func(what string) {
		a.Exec(t, `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
CREATE TRIGGER refuse `+what+` FOR EACH STATEMENT EXECUTE FUNCTION refuse()`)
		if _, err := splitting.Split(t.Context(), splitting.Config{Pool: a.Pool, Log: a.Log, Partition: 0}); err == nil {
			t.Fatal("it was split")
		}
	}
	refuse(`BEFORE DELETE ON badged.partitions`)
	list, err := moving.List(t.Context(), all, []int{0, 1, 2, 3}, func(int) string { return "a" }, time.Minute)
	if err != nil || list[0].State != moving.Splitting || list[0].To != "" || list[0].Shard != "a" {
		t.Errorf("it is listed as %+v: %v", list[0], err)
	}
	a.Exec(t, `DROP TRIGGER refuse ON badged.partitions`)
	refuse(`BEFORE TRUNCATE ON badged.users_p00`)
	list, err = moving.List(t.Context(), all, []int{1, 2, 3, 4, 8}, func(int) string { return "a" }, time.Minute)
	if want := (moving.Partition{Partition: 0, Shard: "a", State: moving.OldRows}); err != nil || len(list) != 6 || list[5] != want {
		t.Errorf("it is listed as %+v: %v", list, err)
	}
}

// If a shard does not answer, List returns the partitions of the other shards. The state of the
// partitions on this shard is unknown.
func TestListBesideAShardThatHangs(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	move(t, config(a, b, 3, "b"))
	tx, err := b.Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE badged.moves`); err != nil { // the last that is read
		t.Fatal(err)
	}
	list, err := moving.List(t.Context(), config(a, b, 0, "").Databases, []int{0, 1, 2, 3}, func(p int) string { return string("aaab"[p]) }, time.Second)
	if err == nil || !strings.Contains(err.Error(), "shard b: it did not answer within 1s") {
		t.Errorf("of the shard it says %v", err)
	}
	for i, p := range list {
		if want := []moving.State{moving.Serving, moving.Serving, moving.Serving, moving.Unknown}[i]; p.State != want || p.Shard != string("aaab"[i]) {
			t.Errorf("partition %d is listed as %s on %s", p.Partition, p.State, p.Shard)
		}
	}
}
