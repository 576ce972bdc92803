package archive_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
)

// records returns records of every kind that a log can have.
func records() []archive.Record {
	at := time.Date(2026, 1, 31, 23, 59, 59, 123456000, time.UTC)
	record := func(offset int64, payload, metadata []byte) archive.Record {
		return archive.Record{Record: events.Record{
			Place: events.Place{Position: events.Position{TransactionID: 1 << 40, Offset: offset}},
			UUID:  uuid.MustParse("0193a1c2-7d5e-8c3b-9a41-5e0f5b7b9ad1"), AppendedAt: at.Add(time.Duration(offset) * time.Microsecond), Payload: payload,
		}, Metadata: metadata}
	}
	second := record(10, []byte(`{}`), nil)
	second.Index = 1
	return []archive.Record{
		record(1, []byte(`{"id": "\u0000 <&>", "id":1,  "é":[1e400]}`), nil),
		record(2, nil, nil),
		record(3, []byte(`null`), []byte(`{"event":"}","traceparent": "00-a"}`)),
		record(4, []byte("{\r\n\"a\":\n1}"), nil),
		record(5, []byte(`"text"`), nil),
		record(6, []byte("\x28\xb5\x2f\xfd no JSON"), nil),
		record(7, []byte(`{"a":"`+"\xff"+`"}`), nil),
		record(8, []byte(" 1"), nil),
		record(9, []byte{}, nil),
		second,
	}
}

func each(rs []archive.Record) func(func(*archive.Record) error) error {
	return func(visit func(*archive.Record) error) error {
		for i := range rs {
			if err := visit(&rs[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

func newArchive(t *testing.T) (*archive.Archive, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a", "b")
	a, err := archive.Create(t.Context(), archive.Folder(dir), uuid.New(), 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() }) // which a test may have done
	return a, dir
}

func write(t *testing.T, a *archive.Archive, number int, rs []archive.Record) archive.File {
	t.Helper()
	f, err := a.Write(t.Context(), 3, number, each(rs))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Add(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	return f
}

// Reading an archive returns the records unchanged, except for line ends
// between tokens.
func TestRecordsComeBack(t *testing.T) {
	a, dir := newArchive(t)
	f := write(t, a, 1, records())
	if f.Events != 10 || f.First != "1099511627776/1" || f.Last != "1099511627776/10/1" || !f.AppendedUntil.Equal(records()[9].AppendedAt) || f.Name != "events_p03.00001.ndjson.zst" {
		t.Errorf("the manifest is to say %+v", f)
	}
	b, err := archive.OpenStore(t.Context(), archive.Folder(dir))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a.Files(3), b.Files(3)); diff != "" || b.LogID() != a.LogID() || b.Partitions() != 4 || len(b.Files(2)) > 0 {
		t.Errorf("opened again (-want +got):\n%s", diff)
	}
	if err := b.Check(t.Context(), f); err != nil {
		t.Error(err)
	}
	var got []archive.Record
	if err := b.Read(t.Context(), f, func(page []archive.Record) error {
		got = append(got, page...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := records()
	want[3].Payload = []byte(`{  "a": 1}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// Cut deletes leftovers of interrupted runs, unless they have events that exist nowhere else. It
// ignores a file that was moved out of the archive.
func TestCut(t *testing.T) {
	a, dir := newArchive(t)
	first := write(t, a, 1, records()[:2])
	second := write(t, a, 2, records()[2:4])
	if second.Previous != first.SHA256 {
		t.Errorf("%+v does not follow %+v", second, first)
	}
	third, err := a.Write(t.Context(), 3, 3, each(records()[4:])) // and not added
	if err != nil {
		t.Fatal(err)
	}
	tail := archive.Tail{Partition: 3, Known: 1}
	for _, lost := range []archive.File{second, third} {
		tail.Lacking = func(_ context.Context, rows []archive.Row) ([]archive.Row, error) {
			if rows[0].AppendedAt.Equal(records()[3].AppendedAt) == (lost.Name == second.Name) {
				return rows, nil
			}
			return nil, nil
		}
		var wrong *archive.FileError
		if err := a.CheckCut(t.Context(), tail); !errors.As(err, &wrong) || filepath.Base(wrong.Path) != lost.Name || !strings.Contains(err.Error(), "has events that are not in the log") {
			t.Errorf("the only copy of events in %s: %v", lost.Name, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, third.Name)); err != nil {
		t.Fatal(err)
	}
	if err := a.CheckCut(t.Context(), tail); err != nil {
		t.Errorf("a file that was moved out of the archive: %v", err)
	}
	if err := a.Cut(t.Context(), tail); err != nil {
		t.Fatal(err)
	}
	if again := write(t, a, 2, records()[2:]); again.Events != 8 || len(a.Files(3)) != 2 {
		t.Errorf("in the place of a file that is gone, it is %+v of %v", again, a.Files(3))
	}
	if _, err := archive.OpenStore(t.Context(), archive.Folder(dir)); err != nil {
		t.Error(err)
	}
}

// Only one process at a time adds to an archive or creates it, even if two databases have the same
// log. Other processes can read it meanwhile.
func TestOneAddsAtATime(t *testing.T) {
	a, dir := newArchive(t)
	f := write(t, a, 1, records())
	if _, err := archive.Continue(t.Context(), archive.Folder(dir)); !errors.Is(err, archive.ErrInUse) {
		t.Errorf("beside it another opens with %v", err)
	}
	if _, err := archive.Create(t.Context(), archive.Folder(dir), uuid.New(), 4); !errors.Is(err, archive.ErrInUse) {
		t.Errorf("beside it another begins with %v", err)
	}
	if _, err := archive.OpenStore(t.Context(), archive.Folder(dir)); err != nil {
		t.Errorf("reading ends with %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Create(t.Context(), archive.Folder(dir), uuid.New(), 4); !errors.Is(err, os.ErrExist) {
		t.Errorf("once it is there, it begins anew with %v", err)
	}
	b, err := archive.Continue(t.Context(), archive.Folder(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.LogID() != a.LogID() || len(b.Files(3)) != 1 || b.Files(3)[0].SHA256 != f.SHA256 {
		t.Errorf("then it opens as %+v", b)
	}
	empty := t.TempDir()
	if _, err := archive.Continue(t.Context(), archive.Folder(empty)); !errors.Is(err, archive.ErrNone) {
		t.Errorf("where there is none it opens with %v", err)
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// A failed or canceled write leaves no file.
func TestWriteFails(t *testing.T) {
	a, dir := newArchive(t)
	gone := errors.New("the log is gone")
	if _, err := a.Write(t.Context(), 3, 1, func(func(*archive.Record) error) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("it ended with %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Write(ctx, 3, 1, each(records())); err == nil {
		t.Error("it was written by one who is gone")
	}
	if _, err := os.Stat(filepath.Join(dir, "events_p03.00001.ndjson.zst")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}

// Read detects a damaged file.
func TestReadNoticesWhatIsMissing(t *testing.T) {
	a, _ := newArchive(t)
	f := write(t, a, 1, records())
	f.Events++
	if err := a.Read(t.Context(), f, func([]archive.Record) error { return nil }); err == nil || !strings.Contains(err.Error(), "has 10 events up to 1099511627776/10/1, and should have 11") {
		t.Errorf("it ended with %v", err)
	}
	stop := errors.New("enough")
	if err := a.Read(t.Context(), f, func([]archive.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("it ended with %v", err)
	}
}
