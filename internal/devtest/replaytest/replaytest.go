// Package replaytest compares the tables of a test's database with its log.
package replaytest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/replay"
)

// Verify folds the log from the baseline, and fails the test if the tables differ from the result.
// It does so for all users together and for each of the given users. The explanations for the given
// users must agree, too.
func Verify(t testing.TB, pool *pgxpool.Pool, log *events.Log, users ...string) {
	t.Helper()
	verify(t, pool, log, nil, users)
}

// VerifyArchive is like Verify, and does the same again with the log from the start of the archive
// in dir. In addition, it verifies with little memory, so that the users are folded in several
// portions.
func VerifyArchive(t testing.TB, pool *pgxpool.Pool, log *events.Log, dir string, users ...string) {
	t.Helper()
	a, err := archive.OpenStore(t.Context(), archive.Folder(dir))
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
