package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const partitions = 6

// databases returns migrated databases, each under one of the names.
func databases(t *testing.T, names ...string) []cluster.Candidate {
	t.Helper()
	all := make([]cluster.Candidate, len(names))
	for i, name := range names {
		all[i] = connect(t, name, pgtest.NewDB(t, schematest.Migrated(partitions)))
	}
	return all
}

func connect(t *testing.T, name, url string) cluster.Candidate {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return cluster.Candidate{Name: name, Pool: pool}
}

// again returns the same databases with new pools, since a cluster closes its pools. names, if
// given, replace the names.
func again(t *testing.T, all []cluster.Candidate, names ...string) []cluster.Candidate {
	t.Helper()
	fresh := make([]cluster.Candidate, len(all))
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
		fresh[i] = cluster.Candidate{Name: name, Pool: pool}
	}
	return fresh
}

func form(t *testing.T, all []cluster.Candidate) cluster.Formed {
	t.Helper()
	made, err := cluster.Form(t.Context(), again(t, all))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// open opens a cluster with pools of its own.
func open(t *testing.T, all []cluster.Candidate, names ...string) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Open(t.Context(), cluster.Config{Databases: again(t, all, names...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// refuses fails unless opening fails with want.
func refuses(t *testing.T, want error, all []cluster.Candidate, names ...string) error {
	t.Helper()
	c, err := cluster.Open(t.Context(), cluster.Config{Databases: again(t, all, names...)})
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, want) {
		t.Fatalf("open: %v, want %v", err, want)
	}
	return err
}

func exec(t *testing.T, d cluster.Candidate, sql string, args ...any) {
	t.Helper()
	if _, err := d.Pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// move moves a partition without its rows.
func move(t *testing.T, from, to cluster.Candidate, partition int, revision int64) {
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

func read(ctx context.Context, t *testing.T, d cluster.Candidate, sql string, args ...any) (text string) {
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
