package archiving_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
)

// restored restores the archive in dir into a new database.
func restored(t testing.TB, dir string) *projectortest.Database {
	t.Helper()
	d := projectortest.New(t)
	if _, err := tryRestore(t.Context(), d, dir, nil); err != nil {
		t.Fatal(err)
	}
	return d
}

func tryRestore(ctx context.Context, d *projectortest.Database, dir string, filled func(int)) (archiving.Restored, error) {
	done, err := archiving.Restore(ctx, archiving.RestoreConfig{Into: []archiving.Empty{{Pool: d.Pool, Log: d.Log}}, From: []archive.Store{archive.Folder(dir)}, Filled: filled})
	if err != nil {
		return archiving.Restored{}, err
	}
	return done[0], nil
}

// rowsOf returns what an archive has of the log of a partition.
func rowsOf(t testing.TB, d *projectortest.Database, partition int) []string {
	t.Helper()
	return d.Lines(t, `SELECT concat_ws(' ', uuid, created_at, own, metadata, encode(payload, 'escape')) FROM badged.`+events.Topic(partition)+` ORDER BY transaction_id, "offset"`)
}

// numbersOf returns what clients and operators see: badges, conversations, rooms and
// dead letters.
func numbersOf(t testing.TB, d *projectortest.Database) string {
	t.Helper()
	return strings.Join(slices.Concat(
		d.Lines(t, `SELECT (to_jsonb(b) - 'epoch')::text FROM badged.badges AS b ORDER BY user_id`),
		d.Lines(t, `SELECT to_jsonb(u)::text FROM badged.unread AS u ORDER BY user_id, conversation_id`),
		d.Lines(t, `SELECT concat_ws(' ', user_id, conversation_id, delivered_hour) FROM badged.conversations ORDER BY 1`),
		d.Lines(t, `SELECT concat_ws(' ', partition_id, conversation_id, members, delivered_hour) FROM badged.rooms ORDER BY 1`),
		[]string{d.Dump(t)},
	), "\n")
}

// usersOfAll are three users of each partition.
func usersOfAll() (users []string) {
	for p := range foldtest.Partitions {
		for i := range 3 {
			users = append(users, foldtest.User(p, i))
		}
	}
	return users
}

// fillArchive appends histories with rooms to all partitions, and archives each history in one file
// per partition. It returns the rows that the log had, by partition.
func fillArchive(t *testing.T, d *projectortest.Database, dir string) [][]string {
	t.Helper()
	users, rows := usersOfAll(), make([][]string, foldtest.Partitions)
	for turn := range 3 {
		d.Append(t, rapid.Custom(func(rt *rapid.T) []events.Event {
			return append(foldtest.DrawNamedRooms(rt, 2*turn, users), foldtest.DrawNamedRooms(rt, 2*turn+1, users)...)
		}).Example(turn)...)
		name := func(of string) string { return fmt.Sprint(of, " of turn ", turn) }
		// A room that had messages in partition 0 gets members in others.
		d.Append(t, foldtest.Event(name("join"), events.RoomJoined, "hall", nil, foldtest.User(turn, 0), foldtest.User(0, turn)))
		for seq := int64(10*turn + 1); seq <= int64(10*turn+5); seq++ {
			d.Append(t, foldtest.Event(fmt.Sprint("post ", seq), events.RoomPosted, "hall", func(d *events.Data) { d.Seq, d.SenderID = seq, foldtest.User(0, 0) }))
		}
		traced := foldtest.Event(name("traced"), events.ConversationRead, "hall", foldtest.UpTo(int64(10*turn+2)), users...)
		traced.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		d.AppendEach(t, traced, foldtest.Deliver("hall", 1, foldtest.User(0, 0), foldtest.User(3, 2))) // a member refuses the second
		deliver := `{"specversion":"1.0","id":"inner","source":"test","type":"message.delivered","data":{"conversation_id":"inner","seq":1,"user_ids":["` + users[0] + `"]}}`
		for _, payload := range []string{garbage, `[` + garbage + `,` + garbage + `]`, `[[` + deliver + `]]`, `[1,`, ``} {
			d.InsertPayload(t, payload)
		}
		d.AppendAgo(t, 0, foldtest.Deliver(name("old"), 1, users...))
		d.Fold(t)
		for p := range rows {
			rows[p] = append(rows[p], rowsOf(t, d, p)...)
			d.EndRange(t, p)
		}
		archived(t, d, dir)
	}
	return rows
}

// A restored log has the rows of the archived log in the same partitions, and folding it produces
// the same numbers of conversations and rooms, also after further events.
func TestRestore(t *testing.T) {
	lost, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
	many := make([]events.Event, 5500) // more than a page of an archive, in rows of 1,000
	for i := range many {
		many[i] = foldtest.Deliver("many", int64(i+1), foldtest.User(1, 0))
	}
	lost.Append(t, many[0])
	lost.Append(t, many[1:]...)
	rows := fillArchive(t, lost, dir)
	d := projectortest.New(t)
	done, err := tryRestore(t.Context(), d, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := d.Lines(t, `SELECT sum(events)::text FROM (`+strings.Join(d.Lines(t, `SELECT 'SELECT events FROM badged.' || badged.log_table(p) FROM generate_series(0, 3) AS p`), " UNION ALL ")+`) AS log`); n[0] != fmt.Sprint(done.Events) || done.Files != 3*foldtest.Partitions || done.Partitions != foldtest.Partitions {
		t.Errorf("it says %+v, and the log has %v events", done, n)
	}
	for p := range rows {
		projectortest.Same(t, fmt.Sprint("rows of partition ", p), rows[p], rowsOf(t, d, p))
	}
	if bare := d.Lines(t, `SELECT relname FROM pg_class WHERE relnamespace = 'badged'::regnamespace AND relname ~ '^events_p.._r1$' AND reltuples <= 0`); len(bare) > 0 {
		t.Errorf("the planner has no statistics of %v", bare)
	}
	d.Fold(t)
	projectortest.Same(t, "numbers", numbersOf(t, lost), numbersOf(t, d))
	replaytest.Verify(t, d.Pool, d.Log, usersOfAll()...)

	at := foldtest.Noon.Add(1e12)
	for _, d := range []*projectortest.Database{lost, d} {
		d.AppendAt(t, at, foldtest.Event("later", events.RoomPosted, "hall", foldtest.Seq(100)), foldtest.Event("latest", events.RoomJoined, "hall", nil, foldtest.User(3, 1)),
			foldtest.Event("post 25", events.RoomPosted, "hall", foldtest.Seq(25)), foldtest.Deliver("old of turn 2", 1, usersOfAll()...))
		d.Fold(t)
	}
	projectortest.Same(t, "numbers after more events", numbersOf(t, lost), numbersOf(t, d))
	if b := d.Badge(t, foldtest.User(1, 0)); b.Total == 0 {
		t.Error("a member of another partition has nothing unread")
	}
}

// A restore that would be wrong changes nothing, and its error says what to do.
func TestRestoreRefuses(t *testing.T) {
	lost, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
	fillArchive(t, lost, dir)
	file := func(dir string, number int) string {
		return filepath.Join(dir, fmt.Sprintf("events_p01.%05d.ndjson.zst", number))
	}
	changed := func(change func(dir string) error) string {
		t.Helper()
		other := filepath.Join(t.TempDir(), "archive")
		if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := change(other); err != nil {
			t.Fatal(err)
		}
		return other
	}
	for name, tc := range map[string]struct{ dir, want string }{
		"no archive": {t.TempDir(), "not an archive"},
		"other partitions": {changed(func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			a, err := archive.Create(t.Context(), archive.Folder(dir), uuid.New(), 16)
			if err != nil {
				return err
			}
			return a.Close()
		}), "the number of partitions of the archive is 16, and that of the database 4: create another database with `badged migrate up --partitions 16`"},
		"a missing file":   {changed(func(dir string) error { return os.Remove(file(dir, 2)) }), "events_p01.00002.ndjson.zst is missing"},
		"a truncated file": {changed(func(dir string) error { return os.Truncate(file(dir, 3), 100) }), "events_p01.00003.ndjson.zst has changed since it was written: it has 100 bytes"},
		"a file that the manifest lacks": {changed(func(dir string) error {
			return editManifest(dir, func(files []archive.File) []archive.File {
				return slices.DeleteFunc(files, func(f archive.File) bool { return f.Partition == 1 && f.Number == 2 })
			})
		}), "file 3 of partition 1 does not follow the one before it"},
	} {
		t.Run(name, func(t *testing.T) {
			d := projectortest.New(t)
			if _, err := tryRestore(t.Context(), d, tc.dir, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it ends with %v, want %q", err, tc.want)
			}
			wantEmpty(t, d)
		})
	}

	const used = "of the database has events already, of an earlier restore or of publishers: restore into a new database, before anything publishes to it"
	t.Run("a log with events", func(t *testing.T) {
		d := projectortest.New(t)
		d.Append(t, foldtest.Deliver("c", 1, foldtest.User(2, 0)))
		if _, err := tryRestore(t.Context(), d, dir, nil); err == nil || !strings.Contains(err.Error(), "partition 2 "+used) {
			t.Errorf("it ends with %v", err)
		}
		if n := d.Lines(t, `SELECT count(*)::text FROM badged.events_p00`); n[0] != "0" {
			t.Errorf("partition 0 has %v rows", n)
		}
	})
	t.Run("a log that was cut", func(t *testing.T) {
		if _, err := tryRestore(t.Context(), lost, dir, nil); err == nil || !strings.Contains(err.Error(), "partition 0 "+used) {
			t.Errorf("it ends with %v", err)
		}
	})
	t.Run("again", func(t *testing.T) {
		d := restored(t, dir)
		d.Fold(t)
		before := numbersOf(t, d)
		if _, err := tryRestore(t.Context(), d, dir, nil); err == nil || !strings.Contains(err.Error(), "partition 0 "+used) {
			t.Errorf("it ends with %v", err)
		}
		d.Fold(t)
		projectortest.Same(t, "numbers", before, numbersOf(t, d))
	})
	t.Run("interrupted", func(t *testing.T) {
		d := projectortest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := tryRestore(ctx, d, dir, func(p int) {
			if p == 2 {
				cancel()
			}
		}); !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
		wantEmpty(t, d)
		if _, err := tryRestore(t.Context(), d, dir, nil); err != nil {
			t.Errorf("then it ends with %v", err)
		}
	})
}

// editManifest changes the list of files in the manifest of an archive.
func editManifest(dir string, change func([]archive.File) []archive.File) error {
	path := filepath.Join(dir, "manifest.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var all map[string]json.RawMessage
	var files []archive.File
	if err := errors.Join(json.Unmarshal(text, &all), json.Unmarshal(all["files"], &files)); err != nil {
		return err
	}
	if all["files"], err = json.Marshal(change(files)); err != nil {
		return err
	}
	if text, err = json.Marshal(all); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// wantEmpty fails the test unless nothing was stored.
func wantEmpty(t testing.TB, d *projectortest.Database) {
	t.Helper()
	for _, table := range d.Lines(t, `SELECT badged.log_table(p) FROM generate_series(0, 3) AS p`) {
		if n := d.Lines(t, `SELECT count(*)::text FROM badged.`+table); n[0] != "0" {
			t.Errorf("%s has %s rows", table, n[0])
		}
	}
}

// A restore blocks publishers, and a message to a room then reaches all members.
func TestRestoreBesidePublishers(t *testing.T) {
	lost, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
	fillArchive(t, lost, dir)
	d := projectortest.New(t)
	published := make(chan error, 1)
	if _, err := tryRestore(t.Context(), d, dir, func(p int) {
		if p != 0 {
			return
		}
		go func() {
			_, err := d.Log.Append(t.Context(), foldtest.Event("meanwhile", events.RoomPosted, "hall", foldtest.Seq(50)))
			published <- err
		}()
		projectortest.Until(t, "a publisher that waits", func() bool {
			return len(d.Lines(t, `SELECT 'waits' FROM pg_locks WHERE NOT granted`)) > 0
		})
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	d.Fold(t)
	lost.Append(t, foldtest.Event("meanwhile", events.RoomPosted, "hall", foldtest.Seq(50)))
	lost.Fold(t)
	unread := `SELECT concat_ws(' ', user_id, unread) FROM badged.unread WHERE conversation_id = 'hall' ORDER BY 1`
	projectortest.Same(t, "unread messages", lost.Lines(t, unread), d.Lines(t, unread))
}
