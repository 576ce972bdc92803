package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// epochOf returns the client's epoch.
func (c *client) epochOf() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// spoil corrupts the rows of a user.
const spoil = `WITH one AS (UPDATE badged.users SET total = 7, categories = '{"chat": [7]}' WHERE user_id = $1)
UPDATE badged.conversations SET unread = 7 WHERE user_id = $1`

// A rebuild while servers run reports and corrects wrong rows, and clients get the change.
func TestRebuild(t *testing.T) {
	t.Parallel()
	database, redis := newDatabase(t), newRedis(t)
	servers := roles(t, database, redis, "--reconcile-interval=1h")
	ann, bob := connect(t, servers["gateway"].url, "ann"), connect(t, servers["gateway"].url, "bob")
	publish(t, servers["api"], delivered("lunch", 1, `"ann","bob"`))
	publish(t, servers["api"], delivered("lunch", 2, `"ann"`))
	ann.awaitTotal(2)
	bob.awaitTotal(1)
	before := ann.epochOf()
	partition := events.PartitionOf("ann", partitions)
	rebuild := func(args ...string) string {
		t.Helper()
		return must(t, append([]string{"rebuild", "-q", "--database-url=" + database, "--redis-url=" + redis.URL()}, args...)...)
	}

	if out := rebuild(); out != "2 users and 2 conversations of 8 partitions rebuilt from the log: no difference, nothing was changed\n" {
		t.Errorf("it prints %s", out)
	}
	sql(t, database, spoil, "ann")
	want := fmt.Sprintf(`partition %d: 1 of 1 user differed from the log; it has new tables and a new epoch
  user "ann", conversation "lunch": unread is 7 in the table, 2 by the log
  user "ann": total is 7 in the table, 2 by the log
  user "ann": categories is {"chat":[7]} in the table, {"chat":[2, 1]} by the log
2 users and 2 conversations of 8 partitions rebuilt from the log: 1 user corrected, 1 partition with a new epoch
`, partition)
	if out := rebuild("--max-load=0.5"); out != want {
		t.Errorf("it prints\n%s, want\n%s", out, want)
	}
	ann.await("another epoch", func() bool { return ann.epoch != before })
	ann.awaitTotal(2)
	if out := rebuild("--json", fmt.Sprint("--partition=", partition)); out != fmt.Sprintf(`{"partition":%d,"users":1,"conversations":1,"different_users":0}
{"partitions":1,"users":1,"conversations":1,"different_users":0,"new_epochs":0}
`, partition) {
		t.Errorf("for one partition it prints %s", out)
	}
	// The servers use the new tables.
	publish(t, servers["api"], delivered("lunch", 3, `"ann","bob"`))
	ann.awaitTotal(3)
	bob.awaitTotal(2)
	must(t, "verify", "--database-url="+database)
}

// A rebuild of one user heals the rows in place, with a greater version of the same epoch.
func TestRebuildOfAUser(t *testing.T) {
	t.Parallel()
	database, redis := newDatabase(t), newRedis(t)
	servers := roles(t, database, redis, "--reconcile-interval=1h")
	ann := connect(t, servers["gateway"].url, "ann")
	publish(t, servers["api"], delivered("lunch", 1, `"ann"`))
	ann.awaitTotal(1)
	epoch := ann.epochOf()
	rebuild := func(args ...string) string {
		t.Helper()
		return must(t, append([]string{"rebuild", "--user=ann", "--database-url=" + database, "--redis-url=" + redis.URL()}, args...)...)
	}
	if out := rebuild(); out != `user "ann" matches the log, nothing was changed`+"\n" {
		t.Errorf("it prints %s", out)
	}
	if out := rebuild("--json"); out != `{"user_id":"ann","healed":false,"differences":[]}`+"\n" {
		t.Errorf("it prints %s", out)
	}
	sql(t, database, spoil, "ann")
	fails(t, 1, "3 differences", "verify", "--user=ann", "--database-url="+database)
	want := `user "ann", conversation "lunch": unread is 7 in the table, 1 by the log
user "ann": total is 7 in the table, 1 by the log
user "ann": categories is {"chat":[7]} in the table, {"chat":[1, 1]} by the log
user "ann" was healed in version 2
`
	if out := rebuild(); out != want {
		t.Errorf("it prints\n%s, want\n%s", out, want)
	}
	ann.await("version 2", func() bool { return ann.version == 2 && ann.total == 1 && ann.epoch == epoch })
	must(t, "verify", "--database-url="+database)
	must(t, "rebuild", "-q", "--database-url="+database)
	if ann.epochOf() != epoch {
		t.Error("healed rows were rebuilt again")
	}
}

// A rebuild that is killed with SIGKILL changes no table that it has not completed, and the next
// rebuild continues it. Only one rebuild runs at a time.
func TestRebuildIsKilled(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	const partition = 1 // is not rebuilt first
	user := usersIn(partition, 1)[0]
	ann := connect(t, p.url, user)
	publish(t, p, delivered("lunch", 1, `"`+user+`"`))
	ann.awaitTotal(1)
	ann.close() // otherwise reconciliation could show the corrupted rows
	before := value[string](t, holderOf(t, database, partition), epochs)
	sql(t, database, spoil, user)

	reading := pgtest.Connect(t, holderOf(t, database, partition))
	pgtest.Exec(t, reading, fmt.Sprintf(`BEGIN; SELECT FROM badged.users_p%02d`, partition))
	first := start(t, nil, "rebuild", "--database-url="+database)
	first.awaitSays(fmt.Sprintf("partition %d waits for", partition))
	if out, stderr, code := command(t, "rebuild", "--database-url="+database); code != 1 || *shardCount == 1 && out != "" ||
		!strings.Contains(stderr, `a rebuild, archiving, move or split is running: "badged rebuild" (Postgres process `) {
		t.Errorf("a second one exits with %d: %s%s", code, out, stderr)
	}
	first.kill()
	sql(t, database, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'badged rebuild' AND datname = current_database()`)
	pgtest.Exec(t, reading, `COMMIT`)
	if _, _, code := command(t, "verify", "--user="+user, "--database-url="+database); code != 1 || value[string](t, holderOf(t, database, partition), epochs) != before {
		t.Errorf("killed, it has changed something: verifying exits with %d", code)
	}

	out, stderr, code := command(t, "rebuild", "--database-url="+database)
	done := 0 // partitions that are rebuilt before it on its shard
	for p := range partition {
		if holderOf(t, database, p) == holderOf(t, database, partition) {
			done++
		}
	}
	if want := fmt.Sprintf("continuing an interrupted rebuild: %d partition", done); code != 0 || !strings.Contains(stderr, want) {
		t.Errorf("the next one exits with %d: %s", code, stderr)
	}
	if want := "1 user and 1 conversation of 8 partitions rebuilt from the log: 1 user corrected, 1 partition with a new epoch\n"; !strings.HasSuffix(out, want) {
		t.Errorf("the next one prints %s", out)
	}
	epoch := ann.epoch
	ann = ann.resume(p.url)
	ann.await("another epoch", func() bool { return ann.epoch != epoch && ann.total == 1 })
	must(t, "verify", "--database-url="+database)

	fails(t, 1, "--partition: there is no partition 8: they are numbered from 0 to 7", "rebuild", "--partition=8", "--database-url="+database)
	fails(t, 1, "--redis-url: ", "rebuild", "--redis-url=ftp://x", "--database-url="+database)
}
