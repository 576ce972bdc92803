package archiving_test

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
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/pgsession"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// watch is a Progress that calls functions.
type watch struct {
	planned func()
	done    func()
}

// Planned calls planned.
func (w watch) Planned(int, int64) { w.planned() }

// Done calls done.
func (w watch) Done(int, int) { w.done() }

// Blocked does nothing.
func (watch) Blocked(int, pgsession.Holder) {}

// later is a time before which everything in these tests was appended.
func later() time.Time { return time.Now().Add(time.Hour) }

// archived archives what it can, into dir.
func archived(t testing.TB, d *projectortest.Database, dir string) []archiving.Result {
	t.Helper()
	done, err := tryArchive(t.Context(), d, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func tryArchive(ctx context.Context, d *projectortest.Database, dir string, change func(*archiving.Config)) (done []archiving.Result, err error) {
	cfg := archiving.Config{Pool: d.Pool, Log: d.Log, Store: archive.Folder(dir), Before: later(), Archived: func(p archiving.Result) { done = append(done, p) }}
	if change != nil {
		change(&cfg)
	}
	return done, archiving.Run(ctx, cfg)
}

// rebuilt rebuilds all partitions and returns how many users differed.
func rebuilt(t testing.TB, d *projectortest.Database, change func(*rebuild.Config)) (different int64) {
	t.Helper()
	cfg := rebuild.Config{Pool: d.Pool, Log: d.Log, Rebuilt: func(r rebuild.Result) { different += r.DifferentUsers }}
	if change != nil {
		change(&cfg)
	}
	if err := rebuild.Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return different
}

// openArchive opens the archive in dir.
func openArchive(t testing.TB, dir string) *archive.Archive {
	t.Helper()
	a, err := archive.OpenStore(t.Context(), archive.Folder(dir))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// garbage is an event that nothing understands.
const garbage = `{"garbage": true}`

// appendTurn appends to partition 0 events that do not commute, repeat earlier events, or become
// dead letters.
func appendTurn(t testing.TB, d *projectortest.Database, turn int) {
	t.Helper()
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	id := func(name string) string { return fmt.Sprint(name, turn) }
	seq := int64(10 * turn)
	d.Append(t,
		foldtest.Deliver("c", seq+1, ann, bob), foldtest.Deliver("c", seq+2, ann), foldtest.Deliver(id("room"), 1, ann, bob),
		foldtest.Event(id("mark"), events.ConversationMarkedUnread, id("room"), nil, bob),
		foldtest.Event(id("read"), events.ConversationRead, id("room"), foldtest.UpTo(1), bob),
		foldtest.Event(id("level"), events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), bob),
	)
	d.InsertPayload(t, garbage)
	d.Append(t, foldtest.Event(id("undo"), events.ConversationLevelSet, "c", foldtest.Level(events.LevelAll), bob))
	if turn > 0 { // what came before the cut comes again
		before := func(name string) string { return fmt.Sprint(name, turn-1) }
		d.Append(t,
			foldtest.Event(before("mark"), events.ConversationMarkedUnread, before("room"), nil, bob),
			foldtest.Event(before("level"), events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), bob))
	}
}

// Replays from the baseline and from the archive reproduce the tables, with duplicates, expired
// keys, healed users and dead letters before the cut.
func TestArchive(t *testing.T) {
	d, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	d.Append(t, foldtest.Nested(ann, bob)...)
	for turn := range 5 {
		appendTurn(t, d, turn)
		d.Fold(t)
		if turn == 1 {
			d.Exec(t, `UPDATE badged.users SET total = 99 WHERE user_id = $1`, bob)
			if _, version, err := replay.NewVerifier(d.Pool, d.Log).Heal(t.Context(), bob); version == 0 || err != nil {
				t.Fatalf("healed in version %d, %v", version, err)
			}
		}
		if turn > 1 {
			d.BeginGeneration(t, 0)
		}
		d.EndRange(t, 0)
		if turn%2 == 0 {
			continue // two ranges at a time
		}
		done := archived(t, d, dir)
		if got := done[0]; got.Files == 0 || got.Events == 0 || got.Bytes == 0 || got.Dropped < got.Files || !strings.Contains(got.Kept, "is not complete yet") {
			t.Errorf("it says %+v", got)
		}
		if n := d.Lines(t, `SELECT count(*)::text FROM badged.events_p00`); n[0] != "0" {
			t.Errorf("the log still has %v events", n)
		}
		replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann, bob)
	}
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann, bob)
	right := d.Dump(t)
	for _, a := range []*archive.Archive{nil, openArchive(t, dir)} {
		for _, memory := range []int64{0, 1} {
			d.Exec(t, `DELETE FROM badged.conversations_p00`)
			d.Exec(t, `DELETE FROM badged.healed_users`)
			if different := rebuilt(t, d, func(cfg *rebuild.Config) { cfg.Archive, cfg.Memory = a, memory }); different < 2 {
				t.Errorf("%d users differed", different)
			}
			got := d.Dump(t)
			if a == nil && memory == 0 { // from then on without the healed version
				right = got
			}
			if diff := cmp.Diff(right, got); diff != "" {
				t.Errorf("rebuilt (-want +got):\n%s", diff)
			}
		}
		d.Exec(t, `UPDATE badged.conversations SET unread = unread + 1 WHERE user_id = $1 AND conversation_id = 'c'`, ann)
		if _, version, err := replay.NewVerifier(d.Pool, d.Log).WithArchive(a).Heal(t.Context(), ann); err != nil || version == 0 {
			t.Errorf("healed in version %d, %v", version, err)
		}
		replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann, bob)
	}
}

// The key of an event that is repeated for other users in a later generation expires for each
// user with the generation of that user, also in a baseline.
func TestArchiveAnEventOfTwoGenerations(t *testing.T) {
	d, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1)}
	deliver := func(seq int64, users ...string) {
		t.Helper()
		d.Append(t, foldtest.Named("again", foldtest.Deliver("c", seq, users...)))
		d.Fold(t)
	}
	deliver(1, users[0])
	d.BeginGeneration(t, 0)
	deliver(2, users...)
	d.EndRange(t, 0)
	archived(t, d, dir)
	for seq := int64(3); seq < 7; seq++ { // it is forgotten for the first, then for both
		deliver(seq, users...)
		replaytest.VerifyArchive(t, d.Pool, d.Log, dir, users...)
		d.BeginGeneration(t, 0)
	}
	for i, want := range []int64{2, 2} {
		if got := d.Badge(t, users[i]).Total; got != want {
			t.Errorf("user %d has %d, want %d", i, got, want)
		}
	}
}

// Run does not archive ranges that are too young, incomplete, not folded, or not read by another
// consumer.
func TestArchiveKeepsWhatIsNeeded(t *testing.T) {
	d, dir := projectortest.New(t), t.TempDir()
	ann := foldtest.User(0, 0)
	d.Append(t, foldtest.Deliver("c", 1, ann))
	wantKept := func(before time.Time, want string) {
		t.Helper()
		done, err := tryArchive(t.Context(), d, dir, func(cfg *archiving.Config) { cfg.Before = before })
		if err != nil || done[0].Events != 0 || done[0].Dropped != 0 || !strings.Contains(done[0].Kept, want) {
			t.Errorf("it says %+v, %v, want that %s", done, err, want)
		}
		if n := d.Lines(t, `SELECT count(*)::text FROM badged.events_p00`); n[0] != "1" {
			t.Errorf("the log has %v events", n)
		}
	}
	wantKept(later(), "is not complete yet")
	d.AddRange(t, 0)
	wantKept(later(), "is not complete yet")
	d.PassRange(t, 0)
	d.Records(t, 0)
	wantKept(time.Now().Add(-time.Hour), "has an event of ")
	wantKept(later(), `the consumer group "projector" has not read`)
	d.Exec(t, `INSERT INTO badged.webhooks (generation, batch, rate, name, url, state, secrets, events) VALUES (1, 1, 0, 'crm', 'https://crm.example', 'active', '{}', '{badge.changed}')`)
	d.Fold(t)
	wantKept(later(), `the consumer group "badged webhook crm" has not read`)
	d.Exec(t, `UPDATE badged.webhooks SET state = 'disabled'`) // then it has no position
	d.Exec(t, `INSERT INTO badged.events_p00_offsets VALUES ('push', 0, '0')`)
	wantKept(later(), `the consumer group "push" has not read`)
	d.Exec(t, `DELETE FROM badged.events_p00_offsets WHERE consumer_group = 'push'`)
	if done := archived(t, d, dir); done[0].Events != 1 || done[0].Dropped != 1 {
		t.Errorf("then it says %+v", done)
	}
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann)
}

// An explanation says up to which time events are archived and cannot be listed. With the archive
// it lists all events.
func TestExplainWhatIsArchived(t *testing.T) {
	d, dir := projectortest.New(t), t.TempDir()
	ann := foldtest.User(0, 0)
	d.Append(t, foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 2, ann))
	d.Fold(t)
	d.EndRange(t, 0)
	archived(t, d, dir)
	d.Append(t, foldtest.Deliver("c", 3, ann), foldtest.Deliver("c", 2, ann))
	d.Fold(t)
	e, err := replay.NewExplainer(d.Pool, d.Log).Explain(t.Context(), ann, replay.Question{})
	if err != nil {
		t.Fatal(err)
	}
	if e.ArchivedUntil == nil || e.Total != 3 || !e.Agrees || len(e.Conversations[0].Messages) != 1 || e.Conversations[0].MoreMessages != 2 ||
		len(e.Uncounted) != 1 || e.Uncounted[0].Detail != "the user had an event of the same source and id before" {
		t.Errorf("from the base it explains %+v", e)
	}
	var archivedErr *replay.ArchivedError
	if _, err := replay.NewExplainer(d.Pool, d.Log).Explain(t.Context(), ann, replay.Question{At: e.ArchivedUntil.Add(-time.Second)}); !errors.As(err, &archivedErr) {
		t.Errorf("of what is archived it explains %v", err)
	}
	x := replay.NewExplainer(d.Pool, d.Log).WithArchive(openArchive(t, dir))
	e, err = x.Explain(t.Context(), ann, replay.Question{})
	if err != nil || e.ArchivedUntil != nil || len(e.Conversations[0].Messages) != 3 || !strings.Contains(e.Uncounted[0].Detail, ", at ") {
		t.Errorf("from the archive it explains %+v, %v", e, err)
	}
	if e, err := x.Explain(t.Context(), ann, replay.Question{At: archivedErr.Until.Add(-time.Second)}); err != nil || e.Total != 0 {
		t.Errorf("before anything, it explains %+v, %v", e, err)
	}
}

// Verifying a user compares the rooms of that user, also if a member of another room in the
// baseline leaves rooms later.
func TestVerifyAUserBesideARoom(t *testing.T) {
	t.Parallel()
	d, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	d.Append(t,
		foldtest.Event("hall", events.RoomJoined, "hall", nil, ann), foldtest.Event("lobby", events.RoomJoined, "lobby", nil, bob),
		foldtest.Event("post", events.RoomPosted, "lobby", foldtest.Seq(1)))
	d.Fold(t)
	archiveHeld(t, d, dir)
	d.Append(t, foldtest.Event("left", events.UserLeftAll, "", func(d *events.Data) { d.Category = "work" }, bob))
	d.Fold(t)
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann)
}

func TestArchiveIsChecked(t *testing.T) {
	d, dir := projectortest.New(t), t.TempDir()
	ann := foldtest.User(0, 0)
	for seq := range int64(2) {
		d.Append(t, foldtest.Deliver("c", seq+1, ann))
		d.Fold(t)
		d.EndRange(t, 0)
		if seq == 0 {
			archived(t, d, dir)
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
	other := projectortest.New(t)
	other.Exec(t, `UPDATE badged.log_identity SET log_id = gen_random_uuid()`) // which a copy has in common
	archived(t, other, foreign)
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
		{"a manifest that says that the file was written anew", dir, "has changed since it was written; replace it by an intact copy", func() {
			was := openArchive(t, dir).Files(0)[0].SHA256
			write(filepath.Join(dir, "manifest.json"), []byte(strings.Replace(string(manifest), `"sha256": "`, `"revision": 1, "origin": "`+was+`", "proof": "00", "sha256": "0`, 1)))
		}},
		{"a manifest without files", dir, "it has 0 of 1 files", func() {
			write(filepath.Join(dir, "manifest.json"), []byte(`{"format": "badged archive 1", "log_id": "`+id+`", "partitions": 4, "files": []}`))
		}},
		{"a broken chain", dir, "file 1 of partition 0 does not follow", func() {
			write(filepath.Join(dir, "manifest.json"), []byte(strings.Replace(string(manifest), `"previous": "`, `"previous": "0`, 1)))
		}},
		{"no JSON", dir, "is not a manifest", func() { write(filepath.Join(dir, "manifest.json"), []byte(`{`)) }},
		{"a field of a later release", dir, `has something that this release does not know (unknown field "shape")`, func() {
			write(filepath.Join(dir, "manifest.json"), []byte(strings.Replace(string(manifest), `"number": 1`, `"number": 1, "shape": "round"`, 1)))
		}},
		{"another format", dir, `has the format ""`, func() { write(filepath.Join(dir, "manifest.json"), []byte(`{}`)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.damage()
			if _, err := tryArchive(t.Context(), d, tc.dir, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("archiving ended with %v", err)
			}
			a, err := archive.OpenStore(t.Context(), archive.Folder(tc.dir))
			if err == nil {
				_, err = replay.NewVerifier(d.Pool, d.Log).WithArchive(a).Verify(t.Context(), 0, replay.VerifyOptions{Found: func(d replay.Difference) { t.Error(d) }})
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("verifying ended with %v", err)
			}
			if n := d.Lines(t, `SELECT (SELECT count(*) FROM badged.events_p00) || ' ' || (SELECT count(*) FROM badged.archived_files)`); n[0] != "1 1" {
				t.Errorf("events and files: %v", n)
			}
			write(first, intact)
			write(filepath.Join(dir, "manifest.json"), manifest)
		})
	}
	// A file that is in the way, and has events that the log lacks, is not overwritten.
	write(filepath.Join(dir, "events_p00.00002.ndjson.zst"), intact)
	if _, err := tryArchive(t.Context(), d, dir, nil); err == nil || !strings.Contains(err.Error(), "has events that are not in the log") {
		t.Errorf("with another's file there it ended with %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "events_p00.00002.ndjson.zst")); err != nil {
		t.Fatal(err)
	}
	archived(t, d, dir)
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann)
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
	{name: "when it becomes the baseline", trigger: `AFTER INSERT ON badged.baselines`},
	{name: "when files are noted", trigger: `AFTER INSERT ON badged.archived_files`},
	{name: "when the baseline is committed", trigger: `AFTER INSERT ON badged.baselines DEFERRABLE`},
	{name: "when ranges are dropped", trigger: `AFTER DELETE ON badged.log_ranges`},
}

// Archiving that is killed at any point loses nothing, and the next run completes it.
func TestArchiveKilledAnywhere(t *testing.T) {
	for _, stage := range archiveStages {
		t.Run(stage.name, func(t *testing.T) {
			d, dir := projectortest.New(t), t.TempDir()
			ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
			for turn := range 2 {
				appendTurn(t, d, turn)
				d.Fold(t)
				d.EndRange(t, 0)
			}
			right := d.Dump(t)
			end := d.KillAt(t, stage.trigger, "badged archive")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			planned, done := 0, 0
			_, err := tryArchive(ctx, d, dir, func(cfg *archiving.Config) {
				cfg.Progress = watch{
					planned: func() {
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
			end()
			replaytest.Verify(t, d.Pool, d.Log)
			d.Append(t, foldtest.Deliver("c", 99, ann))
			d.Fold(t)
			replaytest.Verify(t, d.Pool, d.Log)

			archived(t, d, dir)
			if got := d.Lines(t, `SELECT count(*) || ' in ' || sum(events) FROM badged.archived_files`); got[0] != "2 in 18" {
				t.Errorf("archived are %v", got)
			}
			if left := d.Lines(t, `SELECT relname::text FROM pg_class WHERE relname LIKE '%\_next'`); len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
			if n := d.Lines(t, `SELECT count(*)::text FROM badged.events_p00`); n[0] != "1" {
				t.Errorf("the log has %v events", n)
			}
			replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann, bob)
			if stillRight := strings.Count(d.Dump(t), "\n") == strings.Count(right, "\n"); !stillRight {
				t.Errorf("the rows were\n%s\nand are\n%s", right, d.Dump(t))
			}
		})
	}
}

// An archive has each event of a batch, and payloads that are not JSON. Rebuilds and replays from
// it produce the same badges.
func TestArchiveBatches(t *testing.T) {
	d, dir := projectortest.New(t), t.TempDir()
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	const size = 50
	var row []string
	for seq := range int64(size) {
		payload, err := foldtest.Deliver("c", seq+1, ann, bob).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		row = append(row, string(payload))
	}
	row[5], row[size-1] = garbage, `nonsense`
	packed := foldtest.Row(row...)
	const insert = `INSERT INTO badged.events_p00 (uuid, payload, events) VALUES (gen_random_uuid(), $1, $2)`
	d.Exec(t, insert, packed, size)
	packed[len(packed)-1] ^= 0xFF
	d.Exec(t, insert, packed, size)
	d.Append(t, foldtest.Deliver("d", 1, ann), foldtest.Deliver("d", 2, ann), foldtest.Deliver("c", 1, ann))
	d.Fold(t)
	want := d.Badge(t, ann)
	d.EndRange(t, 0)
	if done := archived(t, d, dir); done[0].Events != size+1+3 {
		t.Errorf("archived %+v, want %d events", done[0], size+1+3)
	}
	f := openArchive(t, dir).Files(0)[0]
	if n := len(f.DeadLetters); n != 3 || !strings.HasSuffix(f.DeadLetters[0], "/5") || !strings.HasSuffix(f.DeadLetters[1], fmt.Sprint("/", size-1)) {
		t.Errorf("dead letters are at %v", f.DeadLetters)
	}
	d.Append(t, foldtest.Deliver("c", 2, ann), foldtest.Deliver("d", 3, ann)) // the first has come before
	d.Fold(t)
	if got := d.Badge(t, ann); got.Total != want.Total+1 {
		t.Errorf("the total is %d, want %d", got.Total, want.Total+1)
	}
	replaytest.Verify(t, d.Pool, d.Log, ann, bob)
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann, bob)
	for _, a := range []*archive.Archive{nil, openArchive(t, dir)} {
		if n := rebuilt(t, d, func(cfg *rebuild.Config) { cfg.Archive = a }); n != 0 {
			t.Errorf("a rebuild finds %d users wrong", n)
		}
	}
}
