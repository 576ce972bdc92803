package eventlog

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A partition may be given up while its owner asks whether the database still holds it.
func TestGoneOnceItIsGivenUp(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres:///none?host="+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ctx, giveUp := context.WithCancel(t.Context())
	if IsGone(ctx, pool, 0) {
		t.Error("a database that cannot be reached has lost a partition")
	}
	giveUp()
	if !IsGone(ctx, pool, 0) {
		t.Error("a partition that was given up is not gone")
	}
}
