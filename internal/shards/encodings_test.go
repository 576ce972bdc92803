package shards_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/shards"
)

// Text that one shard can store and another cannot would stop moves and reads, so all shards
// have one encoding: when they are made a cluster, when they are opened, and while they are.
func TestShardsHaveOneEncoding(t *testing.T) {
	// As a database that was made with this encoding, for new connections.
	encode := func(d shards.Database, encoding string) {
		t.Helper()
		exec(t, d, `UPDATE pg_database SET encoding = pg_char_to_encoding($1) WHERE datname = current_database()`, encoding)
	}
	const differ = "the encodings of the databases differ: shard b has LATIN1, and shard a UTF8"
	all := databases(t, "a", "b")
	fresh := []shards.Database{all[0], connect(t, "b", pgtest.NewDB(t, pgtest.Template{}))}
	encode(fresh[1], "LATIN1")
	if err := shards.CheckForm(t.Context(), again(t, fresh)); !errors.Is(err, shards.ErrEncodings) || !strings.Contains(err.Error(), differ) {
		t.Errorf("before a database is migrated: %v", err)
	}
	encode(all[1], "LATIN1")
	if _, err := shards.Form(t.Context(), again(t, all)); !errors.Is(err, shards.ErrEncodings) || !strings.Contains(err.Error(), differ) {
		t.Errorf("to make a cluster: %v", err)
	}

	encode(all[1], "UTF8")
	form(t, all)
	c := open(t, all)
	encode(all[1], "LATIN1")
	if err := refuses(t, shards.ErrEncodings, all); !strings.Contains(err.Error(), differ) {
		t.Errorf("open: %v", err)
	}
	c.Shard("b").Pool.Reset() // as after a failover
	await(t, c, func() bool { return c.Shard("b").Err() != nil })
	if err := c.Shard("b").Err(); !errors.Is(err, shards.ErrEncodings) || !strings.Contains(err.Error(), "shard b has LATIN1, and others UTF8") {
		t.Errorf("while it is open: %v", err)
	}
	encode(all[1], "UTF8")
	c.Shard("b").Pool.Reset()
	await(t, c, func() bool { return c.Shard("b").Err() == nil })
}
