package cli

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// shardCommands are the commands with --shard, by name, and what makes them do something on
// a right cluster.
func shardCommands(t *testing.T) map[string][]string {
	t.Helper()
	all := databaseCommands(t)
	all["migrate up"] = []string{"migrate", "up"}
	all["migrate status"] = []string{"migrate", "status"}
	all["migrate grant"] = []string{"migrate", "grant", "reader", "pg_monitor"}
	all["config check"] = []string{"config", "check", "--connect", "--publisher-keys=chat=secret", "--jwt-keys=" + jwtKeys}
	parser, err := kong.New(&commands{})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		name := strings.Join(commandOf(leaf), " ")
		takes := slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool { return f.Name == "shard" })
		if _, listed := all[name]; listed != takes {
			t.Errorf("%s takes --shard: %t; it is in the list: %t", name, takes, listed)
		}
	}
	all["serve --migrate"] = append(slices.Clone(all["serve"]), "--migrate")
	return all
}

// No command does anything if a database is not the shard that its name says, of this
// cluster: it says what is wrong, and where.
func TestNoCommandWorksOnAWrongDatabase(t *testing.T) {
	flags, urls := newShards(t)
	others, foreign := newShards(t)
	empty := pgtest.NewDB(t, pgtest.Template{})
	// Also something to migrate.
	pgtest.Exec(t, poolOf(t, foreign[1]), `DELETE FROM badged.schema_migrations WHERE version_id = (SELECT max(version_id) FROM badged.schema_migrations)`)
	const counts = `SELECT (SELECT count(*) FROM badged.audit) + (SELECT count(*) FROM badged.schema_migrations)`
	counted := func() (sum int) {
		t.Helper()
		for _, url := range append(slices.Clone(urls), foreign...) {
			var n int
			if err := poolOf(t, url).QueryRow(t.Context(), counts).Scan(&n); err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	before := counted()
	known := shardCommands(t)
	// Each way in which commands look at databases.
	ways := []string{"lag", "audit verify", "repair-log", "migrate up", "migrate status", "migrate grant", "config check", "serve", "serve --migrate"}
	for i, wrong := range []struct {
		what  string
		flags []string
		want  string
	}{
		{"two names exchanged", []string{"--shard=a=" + urls[1], "--shard=b=" + urls[0], flags[2]}, "the database is another shard: the database of --shard a says that it is shard b: check the names"},
		{"a shard of another cluster", []string{flags[0], others[1], flags[2]}, "the database belongs to another cluster: shard b belongs to the cluster "},
		{"an empty database", []string{flags[0], "--shard=b=" + empty, flags[2]}, "the database is empty or not part of the cluster: shard b is not part of the cluster, but the map assigns it partition 1: check its URL"},
	} {
		for name, args := range known {
			if i > 0 && !slices.Contains(ways, name) {
				continue
			}
			t.Run(wrong.what+"/"+name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // servers would serve
				defer cancel()
				r := badgedWith(ctx, "", slices.Concat(args, wrong.flags)...)
				if r.code != exitFailed || !strings.Contains(r.err+r.out, wrong.want) {
					t.Errorf("it exits with %d, without %q:\n%s%s", r.code, wrong.want, r.out, r.err)
				}
			})
		}
	}
	if after := counted(); after != before {
		t.Errorf("%d actions or migrations were recorded", after-before)
	}
	var schemas int
	if err := poolOf(t, empty).QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname = 'badged'`).Scan(&schemas); err != nil || schemas > 0 {
		t.Errorf("the empty database has %d schemas (%v)", schemas, err)
	}
}

// Databases that are to become shards have no name yet: only commands that prepare them
// accept that.
func TestShardsThatAreNoneYet(t *testing.T) {
	fresh := []string{"--shard=a=" + pgtest.NewDB(t, migrated()), "--shard=b=" + pgtest.NewDB(t, migrated())}
	mustDo(t, append([]string{"migrate", "status"}, fresh...)...)
	for _, args := range [][]string{{"audit", "verify"}, {"repair-log"}, {"migrate", "grant", "reader", "pg_monitor"}, {"lag"}} {
		r := badged(t, append(args, fresh...)...)
		if r.code != exitFailed || !strings.Contains(r.err, "the databases are no cluster of shards yet: run `badged migrate up` with the same --shard settings") {
			t.Errorf("%v exits with %d: %s", args, r.code, r.err)
		}
	}
	// One that joins is none yet, beside others.
	flags, _ := newShards(t)
	flags = append(flags, "--shard=d="+pgtest.NewDB(t, pgtest.Template{}))
	r := badged(t, append([]string{"migrate", "status"}, flags...)...)
	if r.code != exitFailed || strings.Contains(r.err, "cluster") || !strings.Contains(r.err, "shard d: ") || !strings.Contains(r.out, "\nd      00001_log.sql") {
		t.Errorf("status exits with %d: %s%s", r.code, r.out, r.err)
	}
	if r := badged(t, append([]string{"audit", "verify"}, flags...)...); r.code != exitFailed || !strings.Contains(r.err, "shard d has not joined the cluster: run `badged migrate up`") {
		t.Errorf("audit verify exits with %d: %s", r.code, r.err)
	}
}

// Every command says which shard lacks migrations, which it has, and what to do.
func TestEveryCommandNamesTheVersionOfAShard(t *testing.T) {
	flags, urls := newShards(t)
	var newest, before string
	b, c := poolOf(t, urls[1]), poolOf(t, urls[2])
	if err := b.QueryRow(t.Context(), `DELETE FROM badged.schema_migrations WHERE version_id = (SELECT max(version_id) FROM badged.schema_migrations) RETURNING version_id::text`).Scan(&newest); err != nil {
		t.Fatal(err)
	}
	if err := b.QueryRow(t.Context(), `SELECT max(version_id)::text FROM badged.schema_migrations`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	want := "migrations are pending: the database is at version " + before + ", and this program needs " + newest + "; run `badged migrate up`"
	for name, args := range shardCommands(t) {
		if name == "migrate up" || name == "serve --migrate" {
			continue // they end that
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r := badgedWith(ctx, "", slices.Concat(args, flags)...)
		cancel()
		if said := r.err + r.out; r.code != exitFailed || !strings.Contains(said, want) || strings.Count(said, want) != strings.Count(said, "shard b: ") && name != "config check" {
			t.Errorf("%s exits with %d:\n%s%s", name, r.code, r.out, r.err)
		}
	}

	// A shard that a newer release has migrated is served, as the others are.
	pgtest.Exec(t, b, `INSERT INTO badged.schema_migrations (version_id, is_applied) VALUES ($1::text::bigint, true)`, newest)
	pgtest.Exec(t, c, `INSERT INTO badged.schema_migrations (version_id, is_applied) VALUES (99999, true)`)
	warning := "badged: the databases are not migrated alike: a is at version " + newest + ", b is at version " + newest + ", c is at version 99999; run `badged migrate up` of the newest release in use\n"
	for _, args := range [][]string{{"lag"}, {"migrate", "status"}} {
		if r := badged(t, append(args, flags...)...); r.code != exitDone || r.err != warning {
			t.Errorf("%v exits with %d and says %q, want %q", args, r.code, r.err, warning)
		}
	}
	server := start(t, append([]string{"serve", "--listen=127.0.0.1:0", "--publisher-keys=chat=" + publisherKey, "--jwt-keys=" + jwtKeys}, flags...)...)
	has(t, "the log", server.err.String(), "the databases are not migrated alike: a is at version "+newest)
}

// Commands that need all shards name all that are unavailable in one error.
func TestAllShardsThatAreAwayAreNamed(t *testing.T) {
	flags, _ := newShards(t)
	flags[1], flags[2] = "--shard=b="+away, "--shard=c="+away
	for _, args := range [][]string{
		{"lag"},
		{"log"},
		{"verify", "-q"},
		{"rebuild", "-q"},
		{"deadletters", "list"},
		{"audit", "list"},
		{"audit", "verify"},
		{"repair-log"},
		{"migrate", "up"},
		{"migrate", "status"},
		{"migrate", "grant", "reader", "pg_monitor"},
		{"partition", "list"},
		{"partition", "plan"},
		{"user", "erase", userOf(0)},
		{"config", "check", "--connect", "--publisher-keys=chat=secret", "--jwt-keys=" + jwtKeys},
	} {
		r := badged(t, append(args, flags...)...)
		if said := r.err + r.out; r.code != exitFailed || !strings.Contains(said, "shard b") || !strings.Contains(said, "shard c") {
			t.Errorf("%v exits with %d:\n%s%s", args, r.code, r.out, r.err)
		}
	}
}

// silentServers returns URLs of servers that accept connections and say nothing. Together is
// closed once all have one at the same time, and apart if a connection is closed before.
func silentServers(t *testing.T, n int) (urls []string, together, apart <-chan struct{}) {
	t.Helper()
	all, gone := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	waiting := make([]int, n)
	change := func(i, by int) {
		mu.Lock()
		defer mu.Unlock()
		waiting[i] += by
		select {
		case <-all:
		case <-gone:
		default:
			if by < 0 {
				close(gone)
			} else if !slices.Contains(waiting, 0) {
				close(all)
			}
		}
	}
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
		if err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		t.Cleanup(func() {
			_ = l.Close()
			serving.Wait()
		})
		serving.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				change(i, 1)
				serving.Go(func() {
					defer conn.Close()
					_, _ = io.Copy(io.Discard, conn) // until the other end gives up
					change(i, -1)
				})
			}
		})
		urls = append(urls, "postgres://badged@"+l.Addr().String()+"/chat?sslmode=disable&connect_timeout=10")
	}
	return urls, all, gone
}

// Shards that are silent cost a command one wait, not one for each.
func TestSilentShardsAreAskedAtTheSameTime(t *testing.T) {
	for name, args := range shardCommands(t) {
		urls, together, apart := silentServers(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			select {
			case <-together:
			case <-apart:
			case <-ctx.Done():
			}
			cancel()
		})
		r := badgedWith(ctx, "", append(slices.Clone(args), "--shard=a="+urls[0], "--shard=b="+urls[1], "--shard=c="+urls[2])...)
		cancel()
		waiting.Wait()
		select {
		case <-together:
		default:
			t.Fatalf("%s asks one after the other, exits with %d:\n%s%s", name, r.code, r.out, r.err)
		}
	}
}
