package tests

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// shardCount is how many databases each stack has. A stack of one has no shards:
// it is a database.
var shardCount = flag.Int("shards", 1, "give each stack so many shards; 1 is a database")

// clusters has the connection strings of all shards of each cluster, by the path of
// the first.
var clusters sync.Map

// stackOf are the databases of a stack, of which tests know the first.
func stackOf(database string) []string {
	given, err := url.Parse(database)
	if err != nil { // it is to be refused
		return []string{database}
	}
	all, ok := clusters.Load(given.Path)
	if !ok {
		return []string{database}
	}
	var shards []string
	for _, shard := range all.([]string) {
		// The place is the shard's; other settings are the test's, such as the user.
		at := parsed(shard)
		settings := given.Query()
		settings.Set("host", at.Query().Get("host"))
		at.RawQuery = settings.Encode()
		shards = append(shards, at.String())
	}
	return shards
}

// parsed returns a connection string of pgtest, whose path is a random name.
func parsed(database string) *url.URL {
	u, err := url.Parse(database)
	if err != nil {
		panic(err)
	}
	return u
}

// shardFlags are the flags that name shards.
func shardFlags(shards []string) []string {
	flags := make([]string, len(shards))
	for i, url := range shards {
		flags[i] = fmt.Sprintf("--shard=%c=%s", 'a'+i, url)
	}
	return flags
}

// withShards returns arguments of badged, with the shards of a cluster in place of its
// database.
func withShards(args []string) []string {
	var all []string
	for _, arg := range args {
		if database, ok := strings.CutPrefix(arg, "--database-url="); ok {
			if shards := stackOf(database); len(shards) > 1 {
				all = append(all, shardFlags(shards)...)
				continue
			}
		}
		all = append(all, arg)
	}
	return all
}

// sharded are migrated databases of a cluster.
func sharded(count int) pgtest.Templates {
	return pgtest.Templates{
		Name: fmt.Sprintf("sharded-%d", count), Count: count,
		Build: func(ctx context.Context, urls []string) error {
			cmd := exec.CommandContext(ctx, binary, append([]string{"migrate", "up", fmt.Sprintf("--partitions=%d", partitions)}, shardFlags(urls)...)...)
			cmd.Env = environment()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("badged migrate up: %w\n%s", err, out)
			}
			return nil
		},
	}
}

// newStack returns the first database of a cluster of the shared server. Commands that
// are given it get all of them.
func newStack(t *testing.T, count int) string {
	t.Helper()
	urls := pgtest.NewDBs(t, sharded(count))
	clusters.Store(parsed(urls[0]).Path, urls)
	return urls[0]
}

// shardOf returns the database of a stack that holds a user.
func shardOf(t *testing.T, database, user string) string {
	t.Helper()
	return holderOf(t, database, events.PartitionOf(user, partitions))
}

// holderOf returns the database of a stack that holds a partition.
func holderOf(t *testing.T, database string, partition int) string {
	t.Helper()
	shards := stackOf(database)
	if len(shards) == 1 {
		return database
	}
	for _, url := range shards {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		var holds bool
		err = conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM badged.partitions WHERE partition_id = $1)", partition).Scan(&holds)
		_ = conn.Close(t.Context()) // it only read
		if err != nil {
			t.Fatal(err)
		}
		if holds {
			return url
		}
	}
	t.Fatalf("no shard holds partition %d", partition)
	return ""
}
