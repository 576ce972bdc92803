package shards_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/shards"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const partitions = 6

// databases returns migrated databases, each under one of the names.
func databases(t *testing.T, names ...string) []shards.Database {
	t.Helper()
	all := make([]shards.Database, len(names))
	for i, name := range names {
		all[i] = connect(t, name, pgtest.NewDB(t, schematest.Migrated(partitions)))
	}
	return all
}

func connect(t *testing.T, name, url string) shards.Database {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return shards.Database{Name: name, Pool: pool}
}

// again returns the same databases with pools of their own, under other names if some
// are given: a cluster closes its pools.
func again(t *testing.T, all []shards.Database, names ...string) []shards.Database {
	t.Helper()
	fresh := make([]shards.Database, len(all))
	for i, d := range all {
		name := d.Name
		if len(names) > 0 {
			name = names[i]
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), d.Pool.Config())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		fresh[i] = shards.Database{Name: name, Pool: pool}
	}
	return fresh
}

func form(t *testing.T, all []shards.Database) shards.Formed {
	t.Helper()
	made, err := shards.Form(t.Context(), again(t, all))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// open opens a cluster with pools of its own.
func open(t *testing.T, all []shards.Database, names ...string) *shards.Cluster {
	t.Helper()
	c, err := shards.Open(t.Context(), shards.Config{Databases: again(t, all, names...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// refuses fails unless opening fails with an error.
func refuses(t *testing.T, want error, all []shards.Database, names ...string) error {
	t.Helper()
	c, err := shards.Open(t.Context(), shards.Config{Databases: again(t, all, names...)})
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, want) {
		t.Fatalf("open: %v, want %v", err, want)
	}
	return err
}

func exec(t *testing.T, d shards.Database, sql string, args ...any) {
	t.Helper()
	if _, err := d.Pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// move moves a partition without its rows.
func move(t *testing.T, from, to shards.Database, partition int, revision int64) {
	t.Helper()
	var epoch string
	if err := from.Pool.QueryRow(t.Context(), `SELECT badged.release_partition($1, $2, $3)`, partition, to.Name, revision).Scan(&epoch); err != nil {
		t.Fatal(err)
	}
	exec(t, to, `SELECT badged.hold_partition($1, $2, $3)`, partition, revision, epoch)
}

// userOf returns a user of a partition.
func userOf(t *testing.T, partition int) string {
	t.Helper()
	for i := range 1000 {
		if id := "u" + string(rune('a'+i%26)) + string(rune('a'+i/26)); events.PartitionOf(id, partitions) == partition {
			return id
		}
	}
	t.Fatal("no user")
	return ""
}

func read(ctx context.Context, t *testing.T, d shards.Database, sql string, args ...any) (text string) {
	t.Helper()
	if err := d.Pool.QueryRow(ctx, sql, args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), time.Minute)
}
