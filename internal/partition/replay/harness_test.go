package replay

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/pubsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// verify returns the differences in a partition, sorted.
func verify(t testing.TB, d *projectortest.Database, partition int, options VerifyOptions) ([]string, Verified) {
	t.Helper()
	found := []string{}
	options.Found = func(d Difference) {
		if d.Partition != partition {
			t.Errorf("%s is in partition %d, not %d", d, d.Partition, partition)
		}
		found = append(found, d.String())
	}
	v, err := NewVerifier(d.Pool, d.Log).Verify(t.Context(), partition, options)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(found)) != v.Differences {
		t.Errorf("reported %d differences, counted %d", len(found), v.Differences)
	}
	slices.Sort(found)
	return found, v
}

// verifyAll fails the test if any partition differs.
func verifyAll(t testing.TB, d *projectortest.Database, options VerifyOptions) (sum Verified) {
	t.Helper()
	for p := range foldtest.Partitions {
		differences, v := verify(t, d, p, options)
		for _, difference := range differences {
			t.Errorf("partition %d: %s", p, difference)
		}
		sum.Users += v.Users
		sum.Conversations += v.Conversations
	}
	return sum
}

// heal heals a user and reports whether it differed. Nothing else may change the user.
func heal(t testing.TB, d *projectortest.Database, user string) (pubsub.Update, bool) {
	t.Helper()
	update, version := healUnderLoad(t, d, user)
	if seen := d.Badge(t, user).Version; version > 0 && seen != version {
		t.Errorf("%s was healed in version %d, and has version %d", user, version, seen)
	}
	return update, version > 0
}

// healUnderLoad heals a user and returns the version that clients see, 0 if the user
// did not differ.
func healUnderLoad(t testing.TB, d *projectortest.Database, user string) (pubsub.Update, int64) {
	t.Helper()
	update, version, err := NewVerifier(d.Pool, d.Log).Heal(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return update, version
}

// explain explains the badge of a user.
func explain(t testing.TB, d *projectortest.Database, user string, q Question) Explanation {
	t.Helper()
	e, err := NewExplainer(d.Pool, d.Log).Explain(t.Context(), user, q)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
