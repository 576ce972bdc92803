package archiving_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/partition/splitting"
)

func split(t testing.TB, d *projectortest.Database, partition int) {
	t.Helper()
	d.Fold(t) // a split needs a projector while events are not folded
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
// after, and replays from the baseline, the archive and a restored log reproduce the tables.
func TestSplitArchivedPartitions(t *testing.T) {
	t.Parallel()
	var users []string
	for n := range 10 {
		users = append(users, foldtest.User(0, n))
	}
	try := func(t *testing.T, rt *rapid.T) bool {
		d, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
		history := foldtest.DrawHistory(rt, foldtest.EveryType(), users)
		for _, e := range foldtest.HonestJoins(foldtest.DrawRooms(rt, users)) {
			at := rapid.IntRange(0, len(history)).Draw(rt, "place")
			history = slices.Insert(history, at, e)
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
	}
	for n := range *histories { // each has databases of its own, whose connections end with it
		t.Run(fmt.Sprint("history ", n), func(t *testing.T) {
			rapid.Custom(func(rt *rapid.T) bool { return try(t, rt) }).Example(n)
		})
	}
}

// Both children read a user's events before the split from the archive: the badge is explained,
// and a corrupt row is found and healed. An undone split leaves nothing.
func TestThePastOfASplitPartition(t *testing.T) {
	t.Parallel()
	d, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1)}
	now := time.Now().Truncate(time.Second)
	d.AppendAt(t, now.Add(-3*time.Hour), foldtest.Deliver("c", 1, users...))
	d.Fold(t)
	archiveHeld(t, d, dir)
	d.AppendAt(t, now.Add(-time.Hour), foldtest.Deliver("c", 2, users...))
	d.Fold(t)
	d.StopFolding()
	d.Exec(t, `DELETE FROM badged.late_folds`) // as if folded when they were appended

	d.Exec(t, `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
CREATE TRIGGER fail BEFORE DELETE ON badged.partitions FOR EACH ROW EXECUTE FUNCTION fail()`)
	cfg := splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 0}
	if _, err := splitting.Split(t.Context(), cfg); err == nil {
		t.Fatal("it was split")
	}
	d.Exec(t, `DROP TRIGGER fail ON badged.partitions`)
	if err := splitting.Undo(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if left := d.Lines(t, `SELECT partition_id || ' ' || sha256 FROM badged.archived_files WHERE partition_id > 0 UNION ALL SELECT partition_id::text FROM badged.baselines WHERE partition_id > 0`); len(left) > 0 {
		t.Errorf("the split that was given up has left %v", left)
	}
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users...)

	split(t, d, 0)
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users...)
	a := openArchive(t, dir)
	for i, user := range users {
		partition := []int{8, 4}[i]
		before := replay.Question{At: now.Add(-2 * time.Hour)}
		e, err := replay.NewExplainer(d.Pool, d.Log).WithArchive(a).Explain(t.Context(), user, before)
		if err != nil || e.Partition != partition || e.Total != 1 || len(e.Conversations) != 1 || len(e.Conversations[0].Messages) != 1 {
			t.Errorf("%s had %+v: %v", user, e, err)
		}
		if _, err := replay.NewExplainer(d.Pool, d.Log).Explain(t.Context(), user, replay.Question{At: now.Add(-4 * time.Hour)}); err == nil {
			t.Error("a time before the cut is explained without the archive")
		}
		d.Exec(t, `UPDATE badged.conversations SET unread = unread + 1 WHERE user_id = $1`, user)
		found := 0
		verifier := replay.NewVerifier(d.Pool, d.Log).WithArchive(a)
		if _, err := verifier.Verify(t.Context(), partition, replay.VerifyOptions{Found: func(replay.Difference) { found++ }}); err != nil || found == 0 {
			t.Errorf("verifying finds %d differences: %v", found, err)
		}
		if _, version, err := verifier.Heal(t.Context(), user); err != nil || version == 0 {
			t.Errorf("healed in version %d: %v", version, err)
		}
	}
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users...)
}

// The children archive the events of an interrupted archiving themselves, and every file is
// listed.
func TestSplitAfterAnInterruptedArchiving(t *testing.T) {
	t.Parallel()
	for name, trigger := range map[string]string{
		"before the baseline": `AFTER INSERT ON badged.archived_files`,
		"behind the baseline": `AFTER DELETE ON badged.log_ranges`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
			users := []string{foldtest.User(0, 0), foldtest.User(0, 1)}
			deliver := func(seq int64) {
				t.Helper()
				d.Append(t, foldtest.Deliver("c", seq, users...))
				d.Fold(t)
			}
			deliver(1)
			archiveHeld(t, d, dir)
			deliver(2)
			d.EndRange(t, 0)
			end := d.KillAt(t, trigger, "badged archive")
			if _, err := tryArchive(t.Context(), d, dir, nil); err == nil {
				t.Fatal("it was not killed")
			}
			end()
			if n := len(openArchive(t, dir).Files(0)); n != 2 {
				t.Fatalf("it has left %d files", n)
			}
			split(t, d, 0)
			replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users...)
			deliver(3)
			archiveHeld(t, d, dir)
			replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users...)
			listed := map[string]bool{}
			for _, p := range []int{4, 8} {
				for _, f := range openArchive(t, dir).Files(p) {
					listed[f.Name] = true
				}
			}
			files, err := filepath.Glob(filepath.Join(dir, "events_*"))
			if err != nil || len(files) != len(listed) || len(listed) < 3 {
				t.Errorf("the files are %v, and listed are %v: %v", files, listed, err)
			}
		})
	}
}

// If archiving after a split is killed at any point, the next run completes it, and no file is
// lost or left over.
func TestKilledArchivingAfterASplit(t *testing.T) {
	t.Parallel()
	d, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1)}
	deliver := func(seq int64) {
		t.Helper()
		d.Append(t, foldtest.Deliver("c", seq, users...))
		d.Fold(t)
	}
	deliver(1)
	archiveHeld(t, d, dir)
	deliver(2)
	split(t, d, 0)
	deliver(3)
	d.StopFolding()
	for _, p := range []int{4, 8} {
		d.EndRange(t, p)
	}
	replaytest.RunKilled(t, d.Pool, dir, func(store archive.Store) error {
		_, err := tryArchive(t.Context(), d, dir, func(cfg *archiving.Config) { cfg.Store = store })
		return err
	})
	for _, p := range []int{4, 8} {
		if n := len(openArchive(t, dir).Files(p)); n != 2 {
			t.Errorf("partition %d has %d files", p, n)
		}
	}
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users...)
}
