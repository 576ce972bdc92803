package revocation_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/server/revocation"
)

// forgetting returns a process whose tokens live for at most an hour.
func forgetting(t *testing.T, pool *pgxpool.Pool) *revocation.List {
	t.Helper()
	l := revocation.New(pool, revocation.Config{MaxLifetime: time.Hour})
	if err := l.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// forget forgets until nothing is left to forget, and returns how many steps that took.
func forget(t *testing.T, l *revocation.List) (steps int) {
	t.Helper()
	for {
		steps++
		more, err := l.Forget(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return steps
		}
	}
}

func usersIn(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), `SELECT user_id FROM badged.revocations ORDER BY 1`)
	users, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return users
}

// A row lives until an hour after the last token that it revokes has expired, and for an hour
// if it revokes none. The process forgets the user with it.
func TestForget(t *testing.T) {
	pool := newPool(t)
	p := load(t, pool)
	for _, user := range []string{"ann", "bob", "cat", "dan"} {
		before := time.Now()
		if user == "cat" || user == "dan" {
			before = time.Time{}
		}
		p.end(t, user, before)
	}
	age := func(user, age string) {
		execute(t, pool, fmt.Sprintf(`UPDATE badged.revocations SET ended_at = now() - interval '%s', revoked_before = revoked_before - interval '%[1]s' WHERE user_id = '%s'`, age, user))
	}
	age("ann", "2 hours 1 minute")
	age("bob", "1 hour 59 minutes")
	age("cat", "1 hour 1 minute")
	age("dan", "59 minutes")
	l := forgetting(t, pool)
	forget(t, p.List) // does not know how long tokens live
	if left := usersIn(t, pool); !slices.Equal(left, []string{"ann", "bob", "dan"}) {
		t.Errorf("without a longest life of tokens the rows of %v are left", left)
	}
	if n := l.Users(); n != 2 {
		t.Errorf("%d users are known, want ann and bob", n)
	}
	forget(t, l)
	if left := usersIn(t, pool); !slices.Equal(left, []string{"bob", "dan"}) {
		t.Errorf("the rows of %v are left", left)
	}
	if n := l.Users(); n != 1 || !l.Revoked("bob", time.Time{}) || l.Revoked("ann", time.Time{}) {
		t.Errorf("%d users are known, want bob", n)
	}
}

// What many rows leave takes many short transactions.
func TestForgettingInSteps(t *testing.T) {
	pool := newPool(t)
	const rows = 3*revocation.ForgetRows - 1
	execute(t, pool, fmt.Sprintf(`INSERT INTO badged.revocations (seq, revoked_before, ended_at, user_id)
SELECT n, now() - interval '3 hours', now() - interval '3 hours', 'user ' || n FROM generate_series(1, %d) AS n`, rows))
	execute(t, pool, fmt.Sprintf(`UPDATE badged.revocation_counter SET last = %d`, rows))
	l := forgetting(t, pool)
	if more, err := l.Forget(t.Context()); err != nil || !more {
		t.Fatalf("after one step there is more: %t, %v", more, err)
	}
	if left := len(usersIn(t, pool)); left != rows-revocation.ForgetRows {
		t.Errorf("one step leaves %d of %d rows", left, rows)
	}
	if steps := forget(t, l); steps != 3 || len(usersIn(t, pool)) != 0 || l.Users() != 0 {
		t.Errorf("%d more steps leave the rows of %d users, and %d in memory", steps, len(usersIn(t, pool)), l.Users())
	}
}

// A row that is written again while others are forgotten stays.
func TestForgettingSparesWhatIsRevokedAgain(t *testing.T) {
	pool := newPool(t)
	p := load(t, pool)
	p.end(t, "ann", noon)
	execute(t, pool, `UPDATE badged.revocations SET ended_at = now() - interval '3 hours'`)
	p.end(t, "ann", time.Now())
	forget(t, forgetting(t, pool))
	if left := usersIn(t, pool); !slices.Equal(left, []string{"ann"}) {
		t.Errorf("the rows of %v are left", left)
	}
}

// The tokens of an erased user stay revoked until every such token has expired.
func TestForgettingTheErased(t *testing.T) {
	pool := newPool(t)
	p := load(t, pool)
	p.end(t, "ann", noon)
	erase(t, pool, "ann")
	for _, tt := range []struct {
		age  string
		want bool
	}{{"1 hour 59 minutes", true}, {"2 hours 1 minute", false}} {
		execute(t, pool, `UPDATE badged.erased_revocations SET revoked_before = now() - interval '`+tt.age+`'`)
		l := forgetting(t, pool)
		forget(t, p.List) // does not know how long tokens live
		forget(t, l)
		for name, l := range map[string]*revocation.List{"a process that forgets": l, "one that starts": load(t, pool).List} {
			if got := l.Revoked("ann", noon.Add(-1000*time.Hour)); got != tt.want {
				t.Errorf("after %s, to %s a token of ann is revoked: %t", tt.age, name, got)
			}
		}
	}
}
