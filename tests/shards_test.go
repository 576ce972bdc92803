package tests

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

// shardCount is how many databases each stack has. A stack of one database has no shards.
var shardCount = flag.Int("shards", 1, "give each stack that many shards; 1 is a database")

// clusters has the connection strings of all shards of each cluster, by the path of
// the first.
var clusters sync.Map

// oneShard is a parameter in a URL which means only this shard: without it, the URL of the first shard
// means the whole stack.
const oneShard = "one-shard"

// stackOf returns the databases of a stack. Tests use the URL of the first as the name of the stack.
func stackOf(database string) []string {
	given, err := url.Parse(database)
	if err != nil { // an invalid URL, which badged must refuse
		return []string{database}
	}
	all, ok := clusters.Load(given.Path)
	if !ok || given.Query().Get("application_name") == oneShard {
		return []string{database}
	}
	var shards []string
	for _, shard := range all.([]string) {
		// All shards are on one server. The test's settings apply to each, such as the
		// user, or the address of a proxy in front of the server.
		at := *given
		at.Path = parsed(shard).Path
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

// shardFlags returns the flags that name shards.
func shardFlags(shards []string) []string {
	flags := make([]string, len(shards))
	for i, url := range shards {
		flags[i] = fmt.Sprintf("--shard=%c=%s", 'a'+i, url)
	}
	return flags
}

// withShards returns arguments of badged in which the URL of a cluster is replaced by the flags for all
// its shards.
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

// inShard matches the prefix of lines that a command prints about one of several shards.
var inShard = regexp.MustCompile(`(?m)^shard [a-z]: `)

// unsharded removes the names of shards from the output of a command. Other tests check these names.
func unsharded(output string) string {
	if *shardCount == 1 {
		return output
	}
	return inShard.ReplaceAllString(output, "")
}

// ofShard matches the label that distinguishes the metrics of shards.
var ofShard = regexp.MustCompile(`,?shard="[a-z]"`)

// sumOfShards returns a page of metrics in which the values of all shards are added.
func sumOfShards(t *testing.T, page string) string {
	t.Helper()
	if *shardCount == 1 {
		return page
	}
	var names []string
	sums := map[string]float64{}
	for line := range strings.Lines(page) {
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		name := strings.NewReplacer("{,", "{", "{}", "").Replace(ofShard.ReplaceAllString(line[:at], ""))
		n, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if _, ok := sums[name]; !ok {
			names = append(names, name)
		}
		sums[name] += n
	}
	var all strings.Builder
	for _, name := range names {
		fmt.Fprintf(&all, "%s %v\n", name, sums[name])
	}
	return all.String()
}

// sharded returns the template for the migrated databases of a cluster.
func sharded(count int) pgtest.Template {
	return pgtest.Template{
		Name: fmt.Sprintf("sharded-%d, partitions: %d", count, partitions), Version: binaryHash(), Count: count,
		Build: func(ctx context.Context, urls []string) error {
			cmd := exec.CommandContext(ctx, binary, append([]string{"migrate", "up", fmt.Sprintf("--partitions=%d", partitions)}, shardFlags(urls)...)...)
			cmd.Env = environment()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("badged migrate up: %w\n%s", err, out)
			}
			for _, url := range urls {
				if err := schematest.Publish(ctx, url); err != nil {
					return err
				}
			}
			return nil
		},
		Adopt: schematest.Adopt,
	}
}

// newDatabaseOn is newDatabase on a Postgres server of the test.
func newDatabaseOn(t *testing.T, server *pgtest.Server) string {
	t.Helper()
	if *shardCount == 1 {
		return server.NewDB(t, migrated())
	}
	return stack(server.NewDBs(t, sharded(*shardCount)))
}

// stack registers a cluster and returns the URL of its first database. Commands that are given this URL
// get all databases of the cluster.
func stack(urls []string) string {
	clusters.Store(parsed(urls[0]).Path, urls)
	return urls[0]
}

// oneDatabase returns a migrated database that is no cluster, also with -shards. It is for tests of
// single transactions, which can only publish to users of one database.
func oneDatabase(t *testing.T) string { return pgtest.NewDB(t, migrated()) }

// shardOf returns the database of a stack that holds a user.
func shardOf(t *testing.T, database, user string) string {
	t.Helper()
	return holderOf(t, database, events.PartitionOf(user, partitions))
}

// shardName returns the name of the shard that holds a user.
func shardName(t *testing.T, database, user string) string {
	t.Helper()
	at := parsed(shardOf(t, database, user)).Path
	return string(rune('a' + slices.IndexFunc(stackOf(database), func(url string) bool { return parsed(url).Path == at })))
}

// holderOf returns the database of a stack that holds a partition.
func holderOf(t *testing.T, database string, partition int) string {
	t.Helper()
	shards := stackOf(database)
	if len(shards) == 1 {
		return database
	}
	for _, url := range shards {
		if value[bool](t, url, "SELECT EXISTS (SELECT FROM badged.partitions WHERE partition_id = $1)", partition) {
			return url + "&application_name=" + oneShard
		}
	}
	t.Fatalf("no shard holds partition %d", partition)
	return ""
}
