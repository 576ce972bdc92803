package moving_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/internal/partition/replay"
)

func TestMain(m *testing.M) {
	if move := os.Getenv(moveEnv); move != "" {
		moveProcess(move)
		return
	}
	goleak.VerifyTestMain(pgtest.Main(m))
}

// newShards returns the databases of shards a and b. The first has all partitions.
func newShards(t testing.TB) (a, b *projectortest.Database) {
	t.Helper()
	a = projectortest.New(t)
	a.Exec(t, joinSQL, "a")
	a.Exec(t, `SELECT badged.map_partition(p, 'a', 1) FROM generate_series(0, $1 - 1) AS p`, foldtest.Partitions)
	return a, newTarget(t, "b")
}

const joinSQL = `INSERT INTO badged.shard (cluster, name, formed_at) VALUES ('6e6ff15d-6b6c-4a4e-9b0c-3a8a1cf5a6ab', $1, now())`

// newTarget returns the database of a shard that has no partitions: a has them all.
func newTarget(t testing.TB, name string) *projectortest.Database {
	t.Helper()
	d := projectortest.New(t)
	d.Exec(t, joinSQL, name)
	d.Exec(t, `SELECT badged.release_partition(p, 'a', 1) FROM generate_series(0, $1 - 1) AS p`, foldtest.Partitions)
	return d
}

func config(a, b *projectortest.Database, partition int, to string) moving.Config {
	return moving.Config{
		Databases: []moving.Database{{Name: "a", Pool: a.Pool, Log: a.Log}, {Name: "b", Pool: b.Pool, Log: b.Log}},
		Partition: partition, To: to,
		Options: copier.Options{Patience: 10 * time.Second}, // a busy machine needs more than the default
	}
}

func move(t testing.TB, cfg moving.Config) moving.Result {
	t.Helper()
	r, err := moving.Move(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// verify compares the tables of a partition with the log.
func verify(t testing.TB, d *projectortest.Database, partition int) {
	t.Helper()
	if _, err := replay.NewVerifier(d.Pool, d.Log).Verify(t.Context(), partition, replay.VerifyOptions{
		Found: func(d replay.Difference) { t.Errorf("partition %d: %s", partition, d) },
	}); err != nil {
		t.Error(err)
	}
}

// states returns the rows of the users of a partition, as text.
func states(t testing.TB, d *projectortest.Database, partition int) []string {
	t.Helper()
	return d.Lines(t, fmt.Sprintf(`SELECT to_jsonb(b)::text FROM badged.badges AS b WHERE partition_id = %d ORDER BY user_id`, partition))
}

func TestMove(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	user := foldtest.User(0, 0)
	var history []events.Event
	for n := range 50 {
		history = append(history, foldtest.Deliver("c", int64(n+1), user, foldtest.User(0, 1+n%10), foldtest.User(1, 0)))
	}
	a.Append(t, history...)
	a.Append(t, foldtest.Nested(user)...)
	a.InsertPayload(t, "no event")
	a.AppendEach(t, foldtest.Event("join", events.RoomJoined, "lobby", nil, user, foldtest.User(1, 1)), foldtest.Event("post", events.RoomPosted, "lobby", foldtest.Seq(1)))
	a.Fold(t)
	before := states(t, a, 0)

	r := move(t, config(a, b, 0, "b"))
	t.Logf("%+v", r)
	a.StopFolding()

	if got := states(t, b, 0); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the moved badges are\n%v\nwant\n%v", got, before)
	}
	if got := states(t, a, 0); len(got) != 0 {
		t.Errorf("the source still has %v", got)
	}
	verify(t, b, 0)

	running(t, b)
	if _, err := b.Log.Append(t.Context(), history[:1]...); err == nil {
		t.Error("b takes events of partition 1")
	}
	repeat := history[0]
	repeat.Data.UserIDs = []string{user}
	b.Append(t, repeat)
	b.AwaitFolded(t)
	if got := states(t, b, 0); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("after a repeated event the badges are\n%v\nwant\n%v", got, before)
	}
	b.Append(t, foldtest.Deliver("c", 100, user))
	b.AwaitFolded(t)
	verify(t, b, 0)
}
