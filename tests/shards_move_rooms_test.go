package tests

import (
	"fmt"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// holdUpCopy makes the mover wait for a lock of the test once it has copied the tables.
const holdUpCopy = `CREATE FUNCTION hold_up_copy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4711);
    RETURN NULL;
END $$;
CREATE TRIGGER hold_up_copy AFTER UPDATE ON badged.moves FOR EACH ROW WHEN (NEW.state = 'copied') EXECUTE FUNCTION hold_up_copy()`

// Messages to a room are answered with 202, and count once, while a partition with members moves, after
// the mover was killed, after the move was undone, and after another move.
func TestRoomsWhileAPartitionMoves(t *testing.T) {
	t.Parallel()
	database := stack(pgtest.NewDBs(t, sharded(2)))
	redis := newRedis(t)
	servers := []*process{serve(t, database, "--redis-url="+redis.URL()), serve(t, database, "--redis-url="+redis.URL())}
	p, user := newCrowd(t, servers[0]).partitionOfA(database)
	other := ""
	for n := 0; other == ""; n++ {
		if u := fmt.Sprintf("other-%d", n); shardName(t, database, u) == "b" {
			other = u
		}
	}
	publish(t, servers[0], joined("lobby", fmt.Sprintf("%q,%q", user, other)))
	seq, sql := 0, int64(0)
	post := func(when string) {
		t.Helper()
		for range 3 {
			for _, s := range servers {
				seq++
				position := publish(t, s, posted("lobby", seq, "x"))
				if got, at := total(t, s, user, position), total(t, s, other, position); got != int64(seq)+sql || at != int64(seq) {
					t.Errorf("%s, after %d messages: %d and %d", when, seq, got, at)
				}
			}
		}
	}
	post("before")

	a, b := stackOf(database)[0], stackOf(database)[1]
	one(t, b, holdUpCopy)
	lock, open := pgtest.Connect(t, b), pgtest.Connect(t, a)
	pgtest.Exec(t, lock, `SELECT pg_advisory_lock(4711)`)
	number := fmt.Sprint(p)
	mover := start(t, nil, "partition", "move", number, "--to=b", "--database-url="+database)
	until(t, b, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	// An open transaction that has published blocks the last step of the move.
	pgtest.Exec(t, open, `BEGIN`)
	pgtest.Exec(t, open, `SELECT badged.publish($1::jsonb)`, delivered("open", 1, fmt.Sprintf("%q", user)))
	pgtest.Exec(t, lock, `SELECT pg_advisory_unlock(4711)`)
	mover.awaitSays("which uses the partition")
	post("in the move")
	mover.kill()
	post("after the mover was killed")
	pgtest.Exec(t, open, `COMMIT`)
	sql++ // a message to the user only, not to the room
	must(t, "partition", "move", number, "--undo", "--database-url="+database)
	post("after the undo")
	one(t, b, `DROP TRIGGER hold_up_copy ON badged.moves`)
	must(t, "partition", "move", number, "--to=b", "--quiet", "--database-url="+database)
	post("after the move")
	must(t, "partition", "move", number, "--to=a", "--quiet", "--database-url="+database)
	post("after the move back")
	must(t, "verify", "--quiet", "--database-url="+database)
}
