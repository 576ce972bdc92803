package archiving_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/rebuild"
	"github.com/badged/badged/projector/splitting"
)

func split(t testing.TB, d *projectortest.Database, partition int) {
	t.Helper()
	d.StopFolding()
	if _, err := splitting.Split(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: partition}); err != nil {
		t.Fatal(err)
	}
}

// visible returns what users see, whatever partition they are in.
func visible(t testing.TB, d *projectortest.Database) []string {
	t.Helper()
	return slices.Concat(
		d.Lines(t, `SELECT (to_jsonb(b) - '{partition_id,epoch}'::text[])::text FROM badged.badges AS b ORDER BY user_id`),
		d.Lines(t, `SELECT (to_jsonb(u) - 'partition_id')::text FROM badged.unread AS u ORDER BY user_id, conversation_id`),
		d.Lines(t, `SELECT conversation_id || ' has ' || sum(members) FROM badged.rooms GROUP BY conversation_id HAVING sum(members) > 0 ORDER BY 1`),
	)
}

// archiveHeld archives all that the partitions have.
func archiveHeld(t testing.TB, d *projectortest.Database, dir string) {
	t.Helper()
	held, err := eventlog.Held(t.Context(), d.Pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range held {
		if p == 0 || p >= foldtest.Partitions { // the users of these tests are here
			d.EndRange(t, p)
		}
	}
	archived(t, d, dir)
}

var histories = flag.Int("split-histories", 2, "how many random histories to archive and split")

// Random histories with rooms, archived and split in turns: users see the same before and
// after, and replays from the baseline and from the archive give the tables. So does a
// log that is restored from the archive.
func TestSplitArchivedPartitions(t *testing.T) {
	t.Parallel()
	var users []string
	for n := range 10 {
		users = append(users, foldtest.User(0, n))
	}
	try := rapid.Custom(func(rt *rapid.T) bool {
		d, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
		history := foldtest.DrawHistory(rt, foldtest.EveryType(), users)
		first := map[string]events.Data{}
		for _, e := range foldtest.DrawRooms(rt, users) {
			// A join that is published again says the same of the room.
			if was, ok := first[e.ID]; ok && e.Type == events.RoomJoined {
				e.Data.Seq, e.Data.UpToSeq, e.Data.ConversationID = was.Seq, was.UpToSeq, was.ConversationID
			} else {
				first[e.ID] = e.Data
			}
			at := rapid.IntRange(0, len(history)).Draw(rt, "place")
			history = slices.Insert(history, at, foldtest.Named("room "+e.ID, e))
		}
		next := func(share int) {
			t.Helper()
			n := len(history) / share
			if n > 0 {
				d.AppendAndFold(t, rt, history[:n])
			}
			history = history[n:]
		}
		divide := func(partition int) {
			t.Helper()
			before := visible(t, d)
			split(t, d, partition)
			projectortest.Same(t, fmt.Sprint("what users see after partition ", partition, " was split"), before, visible(t, d))
			replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users[:3]...)
		}
		d.InsertPayload(t, garbage)
		d.InsertPayload(t, "")
		next(4)
		archiveHeld(t, d, dir)
		next(3)
		divide(0)
		next(2)
		again := rapid.SampledFrom([]int{4, 8}).Draw(rt, "split again")
		if rapid.Bool().Draw(rt, "archive in between") {
			archiveHeld(t, d, dir)
			replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users[:3]...)
		}
		divide(again)
		next(1)
		archiveHeld(t, d, dir)
		replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users[:3]...)
		for _, a := range []*archive.Archive{nil, openArchive(t, dir)} {
			if different := rebuilt(t, d, func(cfg *rebuild.Config) { cfg.Archive = a }); different > 0 {
				t.Errorf("from an archive %v, a rebuild changes %d users", a != nil, different)
			}
		}
		other := restored(t, dir)
		other.Fold(t)
		projectortest.Same(t, "what users see of the restored log", visible(t, d), visible(t, other))
		replaytest.Verify(t, other.Pool, other.Log, users[:3]...)
		other.StopFolding()
		d.StopFolding()
		return true
	})
	for n := range *histories {
		try.Example(n)
		if t.Failed() {
			t.Fatalf("history %d", n)
		}
	}
}
