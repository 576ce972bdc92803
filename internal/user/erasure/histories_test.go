package erasure_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
)

// drawn is a test of a history that was drawn: what fails lets rapid find a shorter one.
type drawn struct {
	testing.TB

	rt *rapid.T
}

func (d drawn) Error(args ...any)                 { d.rt.Error(args...) }
func (d drawn) Errorf(format string, args ...any) { d.rt.Errorf(format, args...) }
func (d drawn) Fatal(args ...any)                 { d.rt.Fatal(args...) }
func (d drawn) Fatalf(format string, args ...any) { d.rt.Fatalf(format, args...) }

// After any history, an erasure does not change the numbers of others, and a replay reproduces
// them. Repeated events count for the user as new events.
func TestEraseHistories(t *testing.T) {
	d := projectortest.New(t)
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2), foldtest.User(1, 0)}
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		history := foldtest.DrawNamedRooms(rt, number, users)
		cut := rapid.IntRange(0, len(history)).Draw(rt, "erased after")
		d.AppendAndFold(t, rt, history[:cut])
		if rapid.IntRange(0, 3).Draw(rt, "with a new generation") == 0 {
			d.BeginGeneration(t, 0)
		}
		if rapid.Bool().Draw(rt, "with an index") {
			d.EndRange(t, 0)
			d.AppendAndFold(t, rt, []events.Event{foldtest.Event(fmt.Sprint("behind the range ", number), events.ConversationRead, "chat", foldtest.UpTo(1), foldtest.User(0, 9))})
			d.IndexLog(t, 0)
		}
		d.StopFolding()
		stop := sync.OnceFunc(folding(t, d).Stop)
		defer stop()
		user := rapid.SampledFrom(users).Draw(rt, "erased")
		before := ofOthers(t, d, user)
		erase(t, d, user)
		if diff := cmp.Diff(before, ofOthers(t, d, user)); diff != "" {
			rt.Fatalf("rows of others (-before +after):\n%s", diff)
		}
		replaytest.Verify(drawn{t, rt}, d.Pool, d.Log, users...)
		stop()
		again := append(slices.Clone(history[cut/2:cut]), history[cut:]...)
		if len(again) > 0 {
			d.AppendAndFold(t, rt, again)
		}
		replaytest.Verify(drawn{t, rt}, d.Pool, d.Log, users...)
	})
}

// Whatever is archived, the archive and the log still give the numbers of other users.
func TestEraseArchivedHistories(t *testing.T) {
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2), foldtest.User(1, 0)}
	rapid.Check(t, func(rt *rapid.T) {
		d, dir := projectortest.New(t), t.TempDir()
		defer func() { d.StopFolding(); d.Pool.Close() }()             // all histories share the server
		history := foldtest.HonestJoins(foldtest.DrawRooms(rt, users)) // the partition may be split
		first := rapid.IntRange(1, len(history)).Draw(rt, "archived up to")
		second := rapid.IntRange(first, len(history)).Draw(rt, "erased after")
		d.AppendAndFold(t, rt, history[:first])
		archived(t, d, dir)
		if second > first {
			d.AppendAndFold(t, rt, history[first:second])
		}
		d.StopFolding()
		if rapid.Bool().Draw(rt, "split") {
			splitPartition(t, d, 0)
		}
		stop := sync.OnceFunc(folding(t, d).Stop)
		defer stop()
		user := rapid.SampledFrom(users).Draw(rt, "erased")
		before := ofOthers(t, d, user)
		if _, err := eraseArchived(t.Context(), d, user, dir); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(before, ofOthers(t, d, user)); diff != "" {
			rt.Fatalf("rows of others (-before +after):\n%s", diff)
		}
		replaytest.VerifyArchive(drawn{t, rt}, d.Pool, d.Log, dir, users...)
		if left := inFiles(t, dir, fmt.Sprintf("%q", user)); left != nil {
			rt.Fatalf("the id is still in %v", left)
		}
		stop()
		if again := slices.Concat(history[first/2:first], history[second:]); len(again) > 0 {
			d.AppendAndFold(t, rt, again)
		}
		replaytest.VerifyArchive(drawn{t, rt}, d.Pool, d.Log, dir, users...)
	})
}
