package cluster_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// Text that one shard can store and another cannot would break moves and reads. So the encodings
// are compared when a cluster is formed, when it is opened, and while it runs.
func TestShardsHaveOneEncoding(t *testing.T) {
	// New connections see the database as if it had been created with this encoding.
	encode := func(d cluster.Candidate, encoding string) {
		t.Helper()
		exec(t, d, `UPDATE pg_database SET encoding = pg_char_to_encoding($1) WHERE datname = current_database()`, encoding)
	}
	const differ = "the encodings of the databases differ: shard b has LATIN1, and shard a has UTF8"
	all := databases(t, "a", "b")
	fresh := []cluster.Candidate{all[0], connect(t, "b", pgtest.NewDB(t, pgtest.Template{}))}
	encode(fresh[1], "LATIN1")
	if err := cluster.CheckForm(t.Context(), again(t, fresh)); !errors.Is(err, cluster.ErrEncodings) || !strings.Contains(err.Error(), differ) {
		t.Errorf("before a database is migrated: %v", err)
	}
	encode(all[1], "LATIN1")
	if _, err := cluster.Form(t.Context(), again(t, all)); !errors.Is(err, cluster.ErrEncodings) || !strings.Contains(err.Error(), differ) {
		t.Errorf("to make a cluster: %v", err)
	}

	encode(all[1], "UTF8")
	form(t, all)
	c := open(t, all)
	encode(all[1], "LATIN1")
	if err := refuses(t, cluster.ErrEncodings, all); !strings.Contains(err.Error(), differ) {
		t.Errorf("open: %v", err)
	}
	c.Database("b").Pool.Reset() // as after a failover
	await(t, c, func() bool { return c.Database("b").Err() != nil })
	if err := c.Database("b").Err(); !errors.Is(err, cluster.ErrEncodings) || !strings.Contains(err.Error(), "shard b has LATIN1, and the others have UTF8") {
		t.Errorf("while it is open: %v", err)
	}
	encode(all[1], "UTF8")
	c.Database("b").Pool.Reset()
	await(t, c, func() bool { return c.Database("b").Err() == nil })
}
