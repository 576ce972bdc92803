package moving_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/moving"
	"github.com/badged/badged/migrations"
)

// asServer returns the shards with connections of a new role that has only the rights of a server.
func asServer(t *testing.T, shards []moving.Database) []moving.Database {
	t.Helper()
	role := "server_" + strings.ToLower(rand.Text())
	var seen []moving.Database
	for i, s := range shards {
		if i == 0 {
			if _, err := s.Pool.Exec(t.Context(), `CREATE ROLE `+role); err != nil {
				t.Fatal(err)
			}
		}
		if err := migrations.Grant(t.Context(), s.Pool.Config().ConnConfig, migrations.RoleServer, role); err != nil {
			t.Fatal(err)
		}
		s.Pool = projectortest.NewPool(t, s.Pool.Config().ConnString(), func(cfg *pgxpool.Config) {
			cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, `SET ROLE `+role)
				return err
			}
		})
		seen = append(seen, s)
	}
	return seen
}

// holders returns the names of the shards that hold partition 0.
func holders(t *testing.T, shards []moving.Database) (names string) {
	t.Helper()
	for _, s := range shards {
		if holds(t, s.Pool, 0) {
			names += s.Name
		}
	}
	return names
}

// holds reports whether a shard has a partition.
func holds(t testing.TB, shard *pgxpool.Pool, partition int) (is bool) {
	t.Helper()
	if err := shard.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM badged.partitions WHERE partition_id = $1)`, partition).Scan(&is); err != nil {
		t.Fatal(err)
	}
	return is
}

// Many servers concurrently complete a move that was interrupted between the commits of the two
// shards, and the next call of the mover only cleans up.
func TestComplete(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	a.Append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	a.Fold(t)
	before := states(t, a, 0)
	cfg := config(a, b, 0, "b")
	b.Exec(t, refuseHold)
	if _, err := moving.Move(t.Context(), cfg); err == nil {
		t.Fatal("the move did not fail")
	}
	server := asServer(t, cfg.Databases)
	if _, is, err := moving.Complete(t.Context(), server, 0); is || err == nil || !strings.Contains(err.Error(), "complete the move of partition 0 from a to b: on b: ") {
		t.Errorf("completing while the target refuses: %v, %v", is, err)
	}
	b.Exec(t, `DROP TRIGGER refuse_hold ON badged.partitions`)
	// While the source cannot be asked, nothing is known.
	away := append([]moving.Database{{Name: "a", Pool: projectortest.NewPool(t, "postgres://127.0.0.1:1/none", nil)}}, server[1:]...)
	if _, is, err := moving.Complete(t.Context(), away, 0); is || err != nil {
		t.Errorf("completing without the source: %v, %v", is, err)
	}
	if got := holders(t, cfg.Databases); got != "" {
		t.Fatalf("%s has the partition", got)
	}
	g, ctx := errgroup.WithContext(t.Context())
	for range 8 {
		g.Go(func() error {
			_, _, err := moving.Complete(ctx, server, 0)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if got := holders(t, cfg.Databases); got != "b" {
		t.Errorf("%q has the partition", got)
	}
	if got := states(t, b, 0); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the badges are\n%v\nwant\n%v", got, before)
	}
	if r := move(t, cfg); !r.Resumed || r.Paused != 0 {
		t.Errorf("the move is %+v", r)
	}
	verify(t, b, 0)
}

// Complete ignores a target that is ready if the source still holds the partition: an attempt of
// the switch failed, or the source began another move later.
func TestCompleteNeedsTheRelease(t *testing.T) {
	t.Parallel()
	a, b := newShards(t)
	a.Append(t, foldtest.Deliver("c", 1, foldtest.User(0, 0)))
	a.Fold(t)
	cfg := config(a, b, 0, "b")
	a.Exec(t, `CREATE FUNCTION refuse_release() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
CREATE TRIGGER refuse_release BEFORE DELETE ON badged.partitions FOR EACH ROW EXECUTE FUNCTION refuse_release()`)
	if _, err := moving.Move(t.Context(), cfg); err == nil {
		t.Fatal("the move did not fail")
	}
	if got := b.Lines(t, `SELECT state FROM badged.moves`); fmt.Sprint(got) != "[ready]" {
		t.Fatalf("the target is %v", got)
	}
	complete := func(what, want string) {
		t.Helper()
		if _, is, err := moving.Complete(t.Context(), cfg.Databases, 0); is || err != nil {
			t.Errorf("%s: %v, %v", what, is, err)
		}
		if got := holders(t, cfg.Databases); got != want {
			t.Errorf("%s: %q has the partition, want %q", what, got, want)
		}
	}
	complete("the source has kept it", "a")
	// What no mover does: the source has released it in another move.
	a.Exec(t, `DROP TRIGGER refuse_release ON badged.partitions`)
	a.Exec(t, `SELECT badged.release_partition(0, 'b', 2)`)
	complete("the source has released it in no move", "")
	a.Exec(t, `UPDATE badged.moves SET state = 'released', move_id = gen_random_uuid()`)
	if _, is, err := moving.Complete(t.Context(), cfg.Databases, 0); is || !errors.Is(err, moving.ErrTargetLost) {
		t.Errorf("the source has released it in another move: %v, %v", is, err)
	}
	if got := holders(t, cfg.Databases); got != "" {
		t.Errorf("%q has the partition", got)
	}
	if got := b.Lines(t, `SELECT badged.complete_move(0, gen_random_uuid(), NULL)::text`); fmt.Sprint(got) != "[false]" {
		t.Errorf("completing an unknown move gives %v", got)
	}
}
