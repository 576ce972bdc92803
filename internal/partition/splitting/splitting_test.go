package splitting_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/partition/splitting"
)

func TestMain(m *testing.M) {
	if arguments := os.Getenv(splitEnv); arguments != "" {
		splitProcess(arguments)
		return
	}
	goleak.VerifyTestMain(pgtest.Main(m))
}

func split(t testing.TB, d *projectortest.Database, partition int) splitting.Result {
	t.Helper()
	r, err := splitting.Split(t.Context(), splitting.Config{
		Pool: d.Pool, Log: d.Log, Partition: partition,
		Options: copier.Options{Patience: 10 * time.Second}, // a busy machine needs more than the default
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// halves returns a user of each of the partitions 4 and 8, both of partition 0.
func halves() (users [2]string) {
	for n := 0; users[0] == "" || users[1] == ""; n++ {
		user := foldtest.User(0, n)
		if eventlog.Belongs(user, 4, foldtest.Partitions) {
			users[0] = user
		} else {
			users[1] = user
		}
	}
	return users
}

// verify compares the tables of all partitions that the database holds with the log.
func verify(t testing.TB, d *projectortest.Database) {
	t.Helper()
	verifyWith(t, t.Errorf, d)
}

// verifyWith is verify with a function that reports differences: the function of a rapid test lets
// rapid find a shorter history.
func verifyWith(t testing.TB, differ func(format string, args ...any), d *projectortest.Database) {
	t.Helper()
	held, err := eventlog.Held(t.Context(), d.Pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range held {
		if _, err := replay.NewVerifier(d.Pool, d.Log).Verify(t.Context(), p, replay.VerifyOptions{
			Found: func(d replay.Difference) { differ("partition %d: %s", p, d) },
		}); err != nil {
			t.Error(err)
		}
	}
}

// states returns what users see, as text, whatever partition they are in.
func states(t testing.TB, d *projectortest.Database) []string {
	t.Helper()
	return slices.Concat(
		d.Lines(t, `SELECT (to_jsonb(b) - '{partition_id,epoch}'::text[])::text FROM badged.badges AS b ORDER BY user_id`),
		d.Lines(t, `SELECT (to_jsonb(u) - 'partition_id')::text FROM badged.unread AS u ORDER BY user_id, conversation_id`),
		d.Lines(t, `SELECT conversation_id || ' has ' || sum(members) FROM badged.rooms GROUP BY conversation_id HAVING sum(members) > 0 ORDER BY 1`),
	)
}

// Random histories with rooms: after all partitions were split, and split again, users see the
// same, and the tables follow from the logs of the new partitions.
func TestSplitChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := projectortest.New(t)
		defer d.Pool.Close() // not when all histories are done: they would hold too many connections
		var users []string
		for n := range 12 {
			users = append(users, foldtest.User(n%foldtest.Partitions, n))
		}
		history := foldtest.DrawHistory(rt, foldtest.EveryType(), users)
		history = append(history, foldtest.HonestJoins(foldtest.DrawRooms(rt, users))...)
		d.AppendAndFold(t, rt, history)
		d.StopFolding()
		before := states(t, d)
		for p := range foldtest.Partitions {
			split(t, d, p)
		}
		if diff := cmp.Diff(before, states(t, d)); diff != "" {
			rt.Errorf("after the split users see (-before +after):\n%s", diff)
		}
		verifyWith(t, rt.Errorf, d)
		split(t, d, 5)
		if diff := cmp.Diff(before, states(t, d)); diff != "" {
			rt.Errorf("after a second split users see (-before +after):\n%s", diff)
		}
		verifyWith(t, rt.Errorf, d)
		for _, user := range users {
			want := d.Lines(t, `SELECT partition_id::text FROM badged.users WHERE user_id = $1`, user)
			if got := d.Lines(t, `SELECT badged.partition_of($1)::text`, user); len(want) > 0 && !slices.Equal(got, want) {
				rt.Errorf("SQL finds %s in partition %v; its row is in %v", user, got, want)
			}
		}
	})
}

// SQL publishes to the partitions to which the users belong after the split, also in a transaction
// that began before the split.
func TestPublishingInSQLAfterTheSplit(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	tx, err := d.Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	publish := func(id string, users ...string) string {
		return fmt.Sprintf(`SELECT badged.publish('{"specversion":"1.0","id":"%s","source":"sql","type":"message.delivered","data":{"conversation_id":"c","seq":1,"user_ids":["%s"]}}')`, id, strings.Join(users, `","`))
	}
	var users []string
	for n := range 80 {
		users = append(users, foldtest.User(n%foldtest.Partitions, n))
	}
	if _, err := tx.Exec(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	for _, p := range []int{0, 1, 4} {
		split(t, d, p)
	}
	if _, err := tx.Exec(t.Context(), publish("across", users...)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Exec(t, publish("small", users[0], users[4], users[8]))
	d.Exec(t, `SELECT badged.publish_batch('[{"specversion":"1.0","id":"j","source":"sql","type":"room.joined","data":{"conversation_id":"r","user_ids":["`+
		strings.Join(users, `","`)+`"]}},{"specversion":"1.0","id":"p","source":"sql","type":"room.posted","data":{"conversation_id":"r","seq":1}}]')`)
	held, err := eventlog.Held(t.Context(), d.Pool)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{2, 3, 5, 8, 9, 12, 20}; !slices.Equal(held, want) {
		t.Errorf("the database holds %v, want %v", held, want)
	}
	found := map[string][]string{}
	for _, p := range held {
		for _, r := range d.Records(t, p) {
			e, err := events.Decode(r.Payload)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range e.Data.UserIDs {
				if !eventlog.Belongs(u, p, foldtest.Partitions) {
					t.Errorf("%s of %s is in partition %d", e.ID, u, p)
				}
				found[e.ID] = append(found[e.ID], u)
			}
		}
	}
	if len(found["across"]) != 80 || len(found["small"]) != 3 || len(found["j"]) != 80 {
		t.Errorf("published to %v", found)
	}
	d.Exec(t, `DO $$ BEGIN
    INSERT INTO badged.events_p00 (uuid, payload) VALUES (gen_random_uuid(), '{}');
    RAISE 'the partition that was split takes an event';
EXCEPTION WHEN SQLSTATE 'BD100' THEN NULL; END $$`)
}

func TestBadSplits(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	d.Fold(t)
	d.StopFolding()
	try := func(p int, want error) {
		t.Helper()
		if _, err := splitting.Split(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: p}); !errors.Is(err, want) {
			t.Errorf("splitting partition %d gives %v, want %v", p, err, want)
		}
	}
	undo := func(want error) {
		t.Helper()
		if err := splitting.Undo(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 0}); !errors.Is(err, want) {
			t.Errorf("undoing gives %v, want %v", err, want)
		}
	}
	try(-1, splitting.ErrUnknownPartition)
	try(4, splitting.ErrUnknownPartition)
	undo(splitting.ErrNoSplit)
	d.Exec(t, `INSERT INTO badged.moves (partition_id, move_id, role, source, target, revision, state) VALUES (0, gen_random_uuid(), 'source', 'a', 'b', 1, 'copying')`)
	try(0, splitting.ErrMoving)
	d.Exec(t, `DELETE FROM badged.moves`)
	d.Exec(t, `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE DELETE ON badged.partitions FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	if _, err := splitting.Split(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 0}); err == nil || !strings.Contains(err.Error(), "the partition is served as before") {
		t.Errorf("the split ended with %v", err)
	}
	d.Append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	undo(nil)
	d.Fold(t)
	d.StopFolding()
	verify(t, d)
	d.Exec(t, `DROP TRIGGER full_disk ON badged.partitions`)
	split(t, d, 0)
	try(0, splitting.ErrWasSplit)
	undo(splitting.ErrWasSplit)
	verify(t, d)
}
