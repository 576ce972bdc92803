package projector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/archiving"
	"github.com/badged/badged/projector/rebuild"
	"github.com/badged/badged/projector/replay"
)

// later is a time before which everything in these tests was appended.
func later() time.Time { return time.Now().Add(time.Hour) }

// archived archives what it can, into dir.
func (d *database) archived(t testing.TB, dir string) []archiving.Result {
	t.Helper()
	done, err := d.tryArchive(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func (d *database) tryArchive(ctx context.Context, dir string, change func(*archiving.Config)) (done []archiving.Result, err error) {
	cfg := archiving.Config{Pool: d.pool, Log: d.log, Dir: dir, Before: later(), Archived: func(p archiving.Result) { done = append(done, p) }}
	if change != nil {
		change(&cfg)
	}
	return done, archiving.Run(ctx, cfg)
}

// cut ends the last range of a partition that has events behind what was
// appended until now.
func (d *database) cut(t testing.TB, partition int) {
	t.Helper()
	d.extend(t, partition)
	d.pass(t, partition)
}

// openArchive opens the archive in dir.
func openArchive(t testing.TB, dir string) *archive.Archive {
	t.Helper()
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// checkArchived checks that the tables are what base and log, and archive and
// log say, in every way in which they are folded again.
func (d *database) checkArchived(t testing.TB, dir string, users ...string) {
	t.Helper()
	d.verifyAll(t, replay.VerifyOptions{})
	d.verifyAll(t, replay.VerifyOptions{Memory: 1})
	d.verifyAll(t, replay.VerifyOptions{Users: users})
	v := replay.NewVerifier(d.pool, d.log).WithArchive(openArchive(t, dir))
	x := replay.NewExplainer(d.pool, d.log)
	for p := range foldtest.Partitions {
		for _, memory := range []int64{0, 1} {
			if _, err := v.Verify(t.Context(), p, replay.VerifyOptions{Memory: memory, Found: func(d replay.Difference) { t.Errorf("by the archive, %v", d) }}); err != nil {
				t.Error(err)
			}
		}
	}
	for _, user := range users {
		if _, err := v.Verify(t.Context(), d.log.PartitionOf(user), replay.VerifyOptions{Users: []string{user}, Found: func(d replay.Difference) { t.Errorf("by the archive, %v", d) }}); err != nil {
			t.Error(err)
		}
		for _, x := range []*replay.Explainer{x, x.WithArchive(openArchive(t, dir))} {
			if e, err := x.Explain(t.Context(), user, replay.Question{}); err != nil || !e.Agrees {
				t.Errorf("of %s it explains %+v, %v", user, e, err)
			}
		}
	}
}

// story appends to partition 0 what does not commute, is repeated, is put aside,
// and is healed.
func (d *database) story(t testing.TB, turn int) {
	t.Helper()
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	id := func(name string) string { return fmt.Sprint(name, turn) }
	seq := int64(10 * turn)
	d.append(t,
		foldtest.Deliver("c", seq+1, ann, bob), foldtest.Deliver("c", seq+2, ann), foldtest.Deliver(id("room"), 1, ann, bob),
		foldtest.Event(id("mark"), events.ConversationMarkedUnread, id("room"), nil, bob),
		foldtest.Event(id("read"), events.ConversationRead, id("room"), foldtest.UpTo(1), bob),
		foldtest.Event(id("level"), events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), bob),
	)
	d.exec(t, garbage)
	d.append(t, foldtest.Event(id("undo"), events.ConversationLevelSet, "c", foldtest.Level(events.LevelAll), bob))
	if turn > 0 { // what came before the cut comes again
		before := func(name string) string { return fmt.Sprint(name, turn-1) }
		d.append(t,
			foldtest.Event(before("mark"), events.ConversationMarkedUnread, before("room"), nil, bob),
			foldtest.Event(before("level"), events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), bob))
	}
}

// What is cut off the log is missed by nobody who folds it again, from the base or
// from the archive, whatever is repeated, rotated, put aside, or healed.
func TestArchive(t *testing.T) {
	d, dir := newDatabase(t), filepath.Join(t.TempDir(), "archive")
	p, ann, bob := d.projector.partitions[0], foldtest.User(0, 0), foldtest.User(0, 1)
	for turn := range 5 {
		d.story(t, turn)
		d.fold(t)
		if turn == 1 {
			d.exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, bob)
			d.heal(t, bob)
		}
		if turn > 1 {
			d.rotate(t, p)
		}
		d.cut(t, 0)
		if turn%2 == 0 {
			continue // two ranges at a time
		}
		done := d.archived(t, dir)
		if got := done[0]; got.Files == 0 || got.Events == 0 || got.Bytes == 0 || got.Dropped < got.Files || !strings.Contains(got.Kept, "is not complete yet") {
			t.Errorf("it says %+v", got)
		}
		if n := d.lines(t, `SELECT count(*)::text FROM badged.events_p00`); n[0] != "0" {
			t.Errorf("the log still has %v events", n)
		}
		d.checkArchived(t, dir, ann, bob)
	}
	d.checkArchived(t, dir, ann, bob)
	right := d.dump(t)
	for _, a := range []*archive.Archive{nil, openArchive(t, dir)} {
		for _, memory := range []int64{0, 1} {
			d.exec(t, `DELETE FROM badged.conversations_p00`)
			d.exec(t, `DELETE FROM badged.healed_users`)
			if rebuilt := d.rebuild(t, func(cfg *rebuild.Config) { cfg.Archive, cfg.Memory = a, memory }); rebuilt[0].DifferentUsers < 2 {
				t.Errorf("rebuilt %+v", rebuilt)
			}
			got := d.dump(t)
			if a == nil && memory == 0 { // from then on without the healed version
				right = got
			}
			if diff := cmp.Diff(right, got); diff != "" {
				t.Errorf("rebuilt (-want +got):\n%s", diff)
			}
		}
		d.exec(t, `UPDATE badged.conversations SET unread = unread + 1 WHERE user_id = $1 AND conversation_id = 'c'`, ann)
		if _, healed, err := replay.NewVerifier(d.pool, d.log).WithArchive(a).Heal(t.Context(), ann); err != nil || !healed {
			t.Errorf("healed %v, %v", healed, err)
		}
		d.checkArchived(t, dir, ann, bob)
	}
}

// What is not to be archived stays: what is too young, not folded, not read by
// another consumer, or not at an end.
func TestArchiveKeepsWhatIsNeeded(t *testing.T) {
	d, dir := newDatabase(t), t.TempDir()
	ann := foldtest.User(0, 0)
	d.append(t, foldtest.Deliver("c", 1, ann))
	wantKept := func(before time.Time, want string) {
		t.Helper()
		done, err := d.tryArchive(t.Context(), dir, func(cfg *archiving.Config) { cfg.Before = before })
		if err != nil || done[0].Events != 0 || done[0].Dropped != 0 || !strings.Contains(done[0].Kept, want) {
			t.Errorf("it says %+v, %v, want that %s", done, err, want)
		}
		if n := d.lines(t, `SELECT count(*)::text FROM badged.events_p00`); n[0] != "1" {
			t.Errorf("the log has %v events", n)
		}
	}
	wantKept(later(), "is not complete yet")
	d.extend(t, 0)
	wantKept(later(), "is not complete yet")
	d.pass(t, 0)
	d.awaitVisible(t, 0)
	wantKept(time.Now().Add(-time.Hour), "has an event of ")
	wantKept(later(), `the consumer group "projector" has not read`)
	d.fold(t)
	d.exec(t, `INSERT INTO badged.events_p00_offsets VALUES ('push', 0, '0')`)
	wantKept(later(), `the consumer group "push" has not read`)
	d.exec(t, `DELETE FROM badged.events_p00_offsets WHERE consumer_group = 'push'`)
	if done := d.archived(t, dir); done[0].Events != 1 || done[0].Dropped != 1 {
		t.Errorf("then it says %+v", done)
	}
	d.checkArchived(t, dir, ann)
}

// Explaining tells from when on events can be named, and names all with the
// archive.
func TestExplainWhatIsArchived(t *testing.T) {
	d, dir := newDatabase(t), t.TempDir()
	ann := foldtest.User(0, 0)
	d.append(t, foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 2, ann))
	d.fold(t)
	d.cut(t, 0)
	d.archived(t, dir)
	d.append(t, foldtest.Deliver("c", 3, ann), foldtest.Deliver("c", 2, ann))
	d.fold(t)
	e := d.explain(t, ann, time.Time{})
	if e.ArchivedUntil == nil || e.Total != 3 || !e.Agrees || len(e.Conversations[0].Messages) != 1 || e.Conversations[0].MoreMessages != 2 ||
		len(e.Uncounted) != 1 || e.Uncounted[0].Detail != "the user had an event of the same source and id before" {
		t.Errorf("from the base it explains %+v", e)
	}
	var archivedErr *replay.ArchivedError
	if _, err := replay.NewExplainer(d.pool, d.log).Explain(t.Context(), ann, replay.Question{At: e.ArchivedUntil.Add(-time.Second)}); !errors.As(err, &archivedErr) {
		t.Errorf("of what is archived it explains %v", err)
	}
	x := replay.NewExplainer(d.pool, d.log).WithArchive(openArchive(t, dir))
	e, err := x.Explain(t.Context(), ann, replay.Question{})
	if err != nil || e.ArchivedUntil != nil || len(e.Conversations[0].Messages) != 3 || !strings.Contains(e.Uncounted[0].Detail, ", at ") {
		t.Errorf("from the archive it explains %+v, %v", e, err)
	}
	if e, err := x.Explain(t.Context(), ann, replay.Question{At: archivedErr.Until.Add(-time.Second)}); err != nil || e.Total != 0 {
		t.Errorf("before anything, it explains %+v, %v", e, err)
	}
}

// An archive that is not whole, or another's, is an error before anything is
// written or dropped.
func TestArchiveIsChecked(t *testing.T) {
	d, dir := newDatabase(t), t.TempDir()
	ann := foldtest.User(0, 0)
	for seq := range int64(2) {
		d.append(t, foldtest.Deliver("c", seq+1, ann))
		d.fold(t)
		d.cut(t, 0)
		if seq == 0 {
			d.archived(t, dir)
		}
	}
	first := filepath.Join(dir, openArchive(t, dir).Files(0)[0].Name)
	intact, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damaged := slices.Clone(intact)
	damaged[len(damaged)/2] ^= 1
	foreign := t.TempDir()
	other := newDatabase(t)
	other.exec(t, `UPDATE badged.log_identity SET log_id = gen_random_uuid()`) // which a copy has in common
	other.archived(t, foreign)
	id := openArchive(t, dir).LogID().String()
	for _, tc := range []struct {
		name, dir, want string
		damage          func()
	}{
		{"another directory", t.TempDir(), "not an archive: manifest.json is missing", func() {}},
		{"that of another log", foreign, "the archive belongs to another log", func() {}},
		{"a missing file", dir, "is missing", func() {
			if err := os.Remove(first); err != nil {
				t.Fatal(err)
			}
		}},
		{"a damaged file", dir, "has changed since it was written", func() { write(first, damaged) }},
		{"half a file", dir, "has changed since it was written", func() { write(first, intact[:len(intact)/2]) }},
		{"another number of partitions", dir, "the archive belongs to another log", func() {
			write(filepath.Join(dir, "manifest.json"), []byte(strings.Replace(string(manifest), `"partitions": 4`, `"partitions": 5`, 1)))
		}},
		{"another manifest", dir, "file events_p00.00001.ndjson.zst has changed since it was written", func() {
			write(filepath.Join(dir, "manifest.json"), []byte(strings.Replace(string(manifest), `"sha256": "`, `"sha256": "0`, 1)))
		}},
		{"a manifest without files", dir, "it has 0 of 1 files", func() {
			write(filepath.Join(dir, "manifest.json"), []byte(`{"format": "badged archive 1", "log_id": "`+id+`", "partitions": 4, "files": []}`))
		}},
		{"a broken chain", dir, "file 1 of partition 0 does not follow", func() {
			write(filepath.Join(dir, "manifest.json"), []byte(strings.Replace(string(manifest), `"previous": "`, `"previous": "0`, 1)))
		}},
		{"no JSON", dir, "is not a manifest", func() { write(filepath.Join(dir, "manifest.json"), []byte(`{`)) }},
		{"another format", dir, `has the format ""`, func() { write(filepath.Join(dir, "manifest.json"), []byte(`{}`)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.damage()
			if _, err := d.tryArchive(t.Context(), tc.dir, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("archiving ended with %v", err)
			}
			a, err := archive.Open(tc.dir)
			if err == nil {
				_, err = replay.NewVerifier(d.pool, d.log).WithArchive(a).Verify(t.Context(), 0, replay.VerifyOptions{Found: func(d replay.Difference) { t.Error(d) }})
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("verifying ended with %v", err)
			}
			if n := d.lines(t, `SELECT (SELECT count(*) FROM badged.events_p00) || ' ' || (SELECT count(*) FROM badged.archived_files)`); n[0] != "1 1" {
				t.Errorf("events and files: %v", n)
			}
			write(first, intact)
			write(filepath.Join(dir, "manifest.json"), manifest)
		})
	}
	// A file that is in the way is not overwritten.
	write(filepath.Join(dir, "events_p00.00002.ndjson.zst"), intact)
	if _, err := d.tryArchive(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), "holds other events than the log") {
		t.Errorf("with another's file there it ended with %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "events_p00.00002.ndjson.zst")); err != nil {
		t.Fatal(err)
	}
	d.archived(t, dir)
	d.checkArchived(t, dir, ann)
}

// archiveStages are the places at which archiving is killed.
var archiveStages = []struct {
	name, trigger string
	planned, done int // which call
}{
	{name: "before writing", planned: 1},
	{name: "while writing", done: 1},
	{name: "with a file written", planned: 2},
	{name: "before folding", planned: 3},
	{name: "after folding", done: 3},
	{name: "after copying users", done: 4},
	{name: "when it becomes the base", trigger: `AFTER INSERT ON badged.baselines`},
	{name: "when files are noted", trigger: `AFTER INSERT ON badged.archived_files`},
	{name: "when the base is committed", trigger: `commit`},
	{name: "when ranges are dropped", trigger: `AFTER DELETE ON badged.log_ranges`},
}

// Killed anywhere, archiving leaves nothing that anybody misses, and another run
// comes to the same end.
func TestArchiveKilledAnywhere(t *testing.T) {
	for _, stage := range archiveStages {
		t.Run(stage.name, func(t *testing.T) {
			d, dir := newDatabase(t), t.TempDir()
			ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
			for turn := range 2 {
				d.story(t, turn)
				d.fold(t)
				d.cut(t, 0)
			}
			right := d.dump(t)
			if stage.trigger != "" {
				create := `CREATE TRIGGER fault ` + stage.trigger + ` FOR EACH STATEMENT`
				if stage.trigger == "commit" {
					create = `CREATE CONSTRAINT TRIGGER fault AFTER INSERT ON badged.baselines DEFERRABLE INITIALLY DEFERRED FOR EACH ROW`
				}
				d.exec(t, `CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid()); RAISE 'it outlived its end';
END $$`)
				d.exec(t, create+` EXECUTE FUNCTION fault()`)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			planned, done := 0, 0
			_, err := d.tryArchive(ctx, dir, func(cfg *archiving.Config) {
				cfg.Progress = watch{
					planned: func(int, int64) {
						if planned++; planned == stage.planned {
							cancel()
						}
					},
					done: func() {
						if done++; done == stage.done {
							cancel()
						}
					},
				}
			})
			if err == nil {
				t.Fatal("nothing killed it")
			}
			d.exec(t, `DROP FUNCTION IF EXISTS fault CASCADE`)
			d.verifyAll(t, replay.VerifyOptions{})
			d.append(t, foldtest.Deliver("c", 99, ann))
			d.fold(t)
			d.verifyAll(t, replay.VerifyOptions{})

			d.archived(t, dir)
			if got := d.lines(t, `SELECT count(*) || ' in ' || sum(events) FROM badged.archived_files`); got[0] != "2 in 18" {
				t.Errorf("archived are %v", got)
			}
			if left := d.lines(t, `SELECT relname::text FROM pg_class WHERE relname LIKE '%\_next'`); len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
			if n := d.lines(t, `SELECT count(*)::text FROM badged.events_p00`); n[0] != "1" {
				t.Errorf("the log has %v events", n)
			}
			d.checkArchived(t, dir, ann, bob)
			if stillRight := strings.Count(d.dump(t), "\n") == strings.Count(right, "\n"); !stillRight {
				t.Errorf("the rows were\n%s\nand are\n%s", right, d.dump(t))
			}
		})
	}
}

// A log that was restored elsewhere, and repaired, goes on from its base, and is
// still that of the archive.
func TestRepairedLogHasItsArchive(t *testing.T) {
	from, original := newOriginal(t)
	dir, ann, bob := t.TempDir(), foldtest.User(0, 0), foldtest.User(0, 1)
	original.fold(t)
	for turn := range 2 {
		original.story(t, turn)
		original.fold(t)
		original.rotate(t, original.projector.partitions[0])
	}
	original.exec(t, `DELETE FROM badged.events_p00_offsets WHERE consumer_group <> 'projector'`)
	original.cut(t, 0)
	original.archived(t, dir)
	original.story(t, 2)
	url := restores()["custom"](t, from, original.url, pgtest.NewServer(t))
	if _, _, err := repaired(t, url, nil); err != nil {
		t.Fatal(err)
	}
	d := openDatabase(t, url)
	d.fold(t)
	d.checkArchived(t, dir, ann, bob)
	d.story(t, 3)
	d.fold(t)
	d.rotate(t, d.projector.partitions[0])
	d.cut(t, 0)
	if done := d.archived(t, dir); done[0].Files != 1 {
		t.Errorf("then it archives %+v", done)
	}
	d.checkArchived(t, dir, ann, bob)
}
