package tests

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

// holdUpMover makes the mover, and no other session, wait when the target begins to hold the partition.
const holdUpMover = `CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') = 'badged partition move' THEN
        PERFORM pg_sleep_until('infinity');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER hold_up AFTER INSERT ON badged.partitions FOR EACH ROW EXECUTE FUNCTION hold_up()`

// isHeldUp is a query that returns whether the mover waits there.
const isHeldUp = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'badged partition move' AND datname = current_database() AND wait_event = 'PgSleep')`

// one runs a statement on only one database of a stack.
func one(t *testing.T, url, statement string) {
	t.Helper()
	pgtest.Exec(t, pgtest.Connect(t, url), statement)
}

// endMover ends the session of the mover, as Postgres does when the mover's host is gone.
const endMover = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'badged partition move' AND datname = current_database()`

// A move is killed between the commits of the two databases. The servers complete it without an
// operator, and events published meanwhile count once.
func TestServersCompleteAMoveKilledInItsSwitch(t *testing.T) {
	t.Parallel()
	database := stack(pgtest.NewDBs(t, sharded(2)))
	redis := newRedis(t)
	servers := []*process{serve(t, database, "--redis-url="+redis.URL()), serve(t, database, "--redis-url="+redis.URL())}
	c := newCrowd(t, servers[0])
	p, user := c.partitionOfA(database)
	stop := c.publish(500)
	defer stop()
	b := stackOf(database)[1]
	one(t, b, holdUpMover)
	mover := start(t, nil, "partition", "move", fmt.Sprint(p), "--to=b", "--quiet", "--database-url="+database)
	until(t, b, isHeldUp)
	for _, shard := range stackOf(database) {
		if value[bool](t, shard, `SELECT EXISTS (SELECT FROM badged.partitions WHERE partition_id = $1)`, p) {
			t.Error("a shard has the partition between the commits")
		}
	}
	mover.kill()
	one(t, b, endMover)
	until(t, b, `SELECT EXISTS (SELECT FROM badged.partitions WHERE partition_id = $1)`, p)
	stop()
	c.check()
	total(t, c.p, user, publish(t, c.p, delivered("after", 1, fmt.Sprintf("%q", user))))
	const says = "completed the move of a partition between the commits of the two databases"
	await(t, "a server to say that it has completed the move", func() bool {
		return strings.Contains(servers[0].out.String()+servers[1].out.String(), says)
	})
	again := fmt.Sprintf("partition move %d --to b", p)
	prints(t, "serving; `badged "+again+"` deletes old rows elsewhere", "partition", "list", "--database-url="+database)
	one(t, b, `DROP TRIGGER hold_up ON badged.partitions`)
	prints(t, "an earlier move was finished", append(strings.Fields(again), "--database-url="+database)...)
	c.onOneShard(database)
	must(t, "verify", "--quiet", "--database-url="+database)
}

// A mover hangs while it keeps the gate closed. Publishers do not wait for it for long.
func TestMoverThatHangsInItsSwitch(t *testing.T) {
	t.Parallel()
	database := stack(pgtest.NewDBs(t, sharded(2)))
	c := newCrowd(t, serve(t, database))
	p, user := c.partitionOfA(database)
	body := func(seq int) string { return "[" + delivered("c", seq, fmt.Sprintf("%q", user)) + "]" }
	if err := c.send(t.Context(), body(1)); err != nil {
		t.Fatal(err)
	}
	a, b := stackOf(database)[0], stackOf(database)[1]
	// In the last copy the gates of the source are closed.
	one(t, b, `CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state = 'ready' THEN
        PERFORM pg_sleep_until('infinity');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER hang AFTER UPDATE ON badged.moves FOR EACH ROW EXECUTE FUNCTION hang()`)
	mover := start(t, nil, "partition", "move", fmt.Sprint(p), "--to=b", "--quiet", "--database-url="+database)
	const gateIsClosed = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 1650552183 AND mode = 'ExclusiveLock' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`
	for range polls(t, "the mover to hang with the gates closed") {
		until(t, b, isHeldUp)
		mover.signal(syscall.SIGSTOP)
		until(t, b, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'badged partition move' AND datname = current_database() AND state = 'active')`)
		if value[bool](t, a, gateIsClosed) {
			break
		}
		mover.signal(syscall.SIGCONT) // the gates are not closed in this attempt, so let it try again
	}
	patient, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.send(patient, body(2)); err != nil {
		t.Error(err)
	}
	c.delivered[user] = 2
	c.check()
	one(t, b, `DROP TRIGGER hang ON badged.moves`)
	mover.signal(syscall.SIGCONT)
	<-mover.done
	if says := mover.out.String(); mover.err == nil || !strings.Contains(says, "a still has it, and nothing is lost: run the command again") {
		t.Errorf("the mover ended with %v:\n%s", mover.err, says)
	}
	must(t, "partition", "move", fmt.Sprint(p), "--to=b", "--quiet", "--database-url="+database)
	c.check()
	c.onOneShard(database)
}

// Killing a server and starting another while a partition moves does not disturb the move. A killed
// move can be undone, and begun again.
func TestServerIsKilledAndAMoveUndone(t *testing.T) {
	t.Parallel()
	database := stack(pgtest.NewDBs(t, sharded(2)))
	redis := newRedis(t)
	c := newCrowd(t, serve(t, database, "--redis-url="+redis.URL()))
	folding := serve(t, database, "--redis-url="+redis.URL())
	p, user := c.partitionOfA(database)
	stop := c.publish(500)
	defer stop()
	a, b := stackOf(database)[0], stackOf(database)[1]
	// A transaction that has published keeps the move from switching.
	open := pgtest.Connect(t, a)
	hold := func() {
		pgtest.Exec(t, open, `BEGIN`)
		pgtest.Exec(t, open, `SELECT badged.publish($1::jsonb)`, delivered("open", 1, fmt.Sprintf("%q", user)))
	}
	hold()
	number := fmt.Sprint(p)
	mover := start(t, nil, "partition", "move", number, "--to=b", "--database-url="+database)
	mover.awaitSays("which uses the partition")
	if list := must(t, "partition", "list", "--database-url="+database); !regexp.MustCompile(`(?m)^` + number + ` +a .* moving to b, which has [0-9]+ rows? of the log$`).MatchString(list) {
		t.Errorf("list:\n%s", list)
	} else {
		lines := regexp.MustCompile(`(?m)^PARTITION .*\n|^[0-9]+ +a .* (serving|moving to b, .*)\n`).FindAllString(list, -1)
		slices.SortStableFunc(lines, func(a, b string) int { return strings.Count(a, "moving") - strings.Count(b, "moving") })
		shown := []string{lines[0], lines[1], lines[len(lines)-1]} // the page shows two partitions, of which the second moves
		snippets.ExpectShape(t, snippets.Output(t, "docs/cli.md", "badged partition list"), strings.Join(shown, ""))
	}
	// A rebuild, which replaces tables, waits for the move and says so.
	if _, stderr, code := command(t, "rebuild", "--partition="+number, "--quiet", "--database-url="+database); code == 0 || !strings.Contains(stderr, "partition move") || !strings.Contains(stderr, "Postgres process") {
		t.Errorf("a rebuild beside a move: %d, %s", code, stderr)
	}
	mover.kill()
	// Locks and triggers of a killed move do not block the rebuild.
	must(t, "rebuild", "--partition="+number, "--quiet", "--database-url="+database)
	must(t, "user", "erase", "ghost", "--database-url="+database)
	if _, stderr, code := command(t, "partition", "move", number, "--to=a", "--database-url="+database); code == 0 {
		t.Errorf("a move to the source: %d, %s", code, stderr)
	}
	if out := must(t, "partition", "move", number, "--undo", "--database-url="+database); out != fmt.Sprintf("partition %d stays on a; the rows copied to b were deleted\n", p) {
		t.Errorf("undo says %q", out)
	}
	if _, stderr, code := command(t, "partition", "move", number, "--undo", "--database-url="+database); code == 0 || !strings.Contains(stderr, "no move was begun of partition "+number) {
		t.Errorf("undo again: %d, %s", code, stderr)
	}
	for _, table := range []string{"events_p%02d", "users_p%02d", "conversations_p%02d"} {
		if value[bool](t, b, "SELECT EXISTS (SELECT FROM badged."+fmt.Sprintf(table, p)+")") {
			t.Errorf("%s of the target has rows after the undo", table)
		}
	}
	if value[bool](t, a, `SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname IN ('moving', 'gate') AND tgrelid = $1::text::regclass)`, fmt.Sprintf("badged.events_p%02d", p)) {
		t.Error("the source still notes changes after the undo")
	}

	mover = start(t, nil, "partition", "move", number, "--to=b", "--database-url="+database)
	mover.awaitSays("which uses the partition")
	folding.kill()
	pgtest.Exec(t, open, `COMMIT`)
	c.mu.Lock()
	c.delivered[user]++
	c.mu.Unlock()
	serve(t, database, "--redis-url="+redis.URL())
	<-mover.done
	if mover.err != nil {
		t.Fatalf("the move: %v\n%s", mover.err, mover.out)
	}
	stop()
	c.check()
	c.onOneShard(database)
	must(t, "verify", "--quiet", "--database-url="+database)
}

// `partition plan` proposes moves. Once they are made, the shards are balanced.
func TestPlanOfMoves(t *testing.T) {
	t.Parallel()
	database := stack(pgtest.NewDBs(t, sharded(2)))
	server := serve(t, database)
	c := newCrowd(t, server)
	var sent []string
	for n, user := range c.users {
		if isOn(t, database, events.PartitionOf(user, partitions), 0) {
			sent = append(sent, delivered("c", n+1, fmt.Sprintf("%q", user)))
		}
	}
	if err := c.send(t.Context(), "["+strings.Join(sent, ",")+"]"); err != nil {
		t.Fatal(err)
	}
	until(t, stackOf(database)[0], `SELECT count(*) = $1 FROM badged.badges`, len(sent))
	plan := must(t, "partition", "plan", "--by=events", "--database-url="+database)
	moves := regexp.MustCompile(`(?m)^badged (partition move [0-9]+ --to b)  # from a: .*, [0-9]+ events$`).FindAllStringSubmatch(plan, -1)
	if len(moves) != partitions/4 {
		t.Fatalf("the plan has %d moves, want %d:\n%s", len(moves), partitions/4, plan)
	}
	if bySize := must(t, "partition", "plan", "--database-url="+database); strings.Count(bySize, "\n") == 0 {
		t.Error("the plan by size is empty")
	}
	for _, m := range moves {
		must(t, append(strings.Fields(m[1]), "--quiet", "--database-url="+database)...)
	}
	if plan := must(t, "partition", "plan", "--by=events", "--database-url="+database); plan != "no move would even out the shards\n" {
		t.Errorf("the plan after its moves:\n%s", plan)
	}
	must(t, "verify", "--quiet", "--database-url="+database)
}
