// Package replaytest compares the tables of a test's database with its log.
package replaytest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/replay"
)

// Verify fails the test if the tables differ from the log, folded from the
// baseline: for all users at once, and for each of the given users, whose
// explanations must agree too.
func Verify(t testing.TB, pool *pgxpool.Pool, log *events.Log, users ...string) {
	t.Helper()
	verify(t, pool, log, nil, users)
}

// VerifyArchive does what Verify does, and the same with the log folded from the
// start of the archive in dir. It also folds a share of the users at a time.
func VerifyArchive(t testing.TB, pool *pgxpool.Pool, log *events.Log, dir string, users ...string) {
	t.Helper()
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, pool, log, nil, users)
	verify(t, pool, log, a, users)
}

func verify(t testing.TB, pool *pgxpool.Pool, log *events.Log, a *archive.Archive, users []string) {
	t.Helper()
	v := replay.NewVerifier(pool, log).WithArchive(a)
	if err := log.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range log.Layout().Living() {
		options := []replay.VerifyOptions{{}}
		if a != nil {
			options = append(options, replay.VerifyOptions{Memory: 1})
		}
		for _, user := range users {
			if log.PartitionOf(user) == p {
				options = append(options, replay.VerifyOptions{Users: []string{user}})
			}
		}
		for _, o := range options {
			o.Found = func(d replay.Difference) { t.Errorf("partition %d, from an archive %v: %s", p, a != nil, d) }
			if _, err := v.Verify(t.Context(), p, o); err != nil {
				t.Error(err)
			}
		}
	}
	x := replay.NewExplainer(pool, log).WithArchive(a)
	for _, user := range users {
		if e, err := x.Explain(t.Context(), user, replay.Question{}); err != nil || !e.Agrees {
			t.Errorf("the explanation of %s, from an archive %v, is %+v, %v", user, a != nil, e, err)
		}
	}
}
