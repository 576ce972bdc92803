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

// shardCount is how many databases each stack has. A stack of one has no shards:
// it is a database.
var shardCount = flag.Int("shards", 1, "give each stack that many shards; 1 is a database")

// clusters has the connection strings of all shards of each cluster, by the path of
// the first.
var clusters sync.Map

// oneShard tells the first shard of a stack from the stack.
const oneShard = "one-shard"

// stackOf are the databases of a stack; tests know the first.
func stackOf(database string) []string {
	given, err := url.Parse(database)
	if err != nil { // it is to be refused
		return []string{database}
	}
	all, ok := clusters.Load(given.Path)
	if !ok || given.Query().Get("application_name") == oneShard {
		return []string{database}
	}
	var shards []string
	for _, shard := range all.([]string) {
		// All are on one server. The settings are the test's, such as the user, or a
		// proxy in front of the server.
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

// inShard begins what a command prints about one of several shards.
var inShard = regexp.MustCompile(`(?m)^shard [a-z]: `)

// unsharded returns what a command prints about a database. The tests of the command line
// look at what it says about shards.
func unsharded(output string) string {
	if *shardCount == 1 {
		return output
	}
	return inShard.ReplaceAllString(output, "")
}

// ofShard is the label that tells the metrics of shards apart.
var ofShard = regexp.MustCompile(`,?shard="[a-z]"`)

// sumOfShards returns metrics in which those of several shards are added up.
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

// sharded are migrated databases of a cluster.
func sharded(count int) pgtest.Templates {
	return pgtest.Templates{
		Name: fmt.Sprintf("sharded-%d", count), Version: binaryHash(), Count: count,
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

// newDatabaseOn is newDatabase for a server of the test.
func newDatabaseOn(t *testing.T, server *pgtest.Server) string {
	t.Helper()
	if *shardCount == 1 {
		return server.NewDB(t, migrated())
	}
	return stack(server.NewDBs(t, sharded(*shardCount)))
}

// stack returns the first database of a cluster. Commands that are given it get all of
// them.
func stack(urls []string) string {
	clusters.Store(parsed(urls[0]).Path, urls)
	return urls[0]
}

// oneDatabase returns a migrated database also with -shards: for tests of what publishers
// do in a transaction of their own, which has the users of one database.
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
