package archive_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/partition/archive"
)

// delivered returns records of messages to one user each, as partition 0 has them.
func delivered(t *testing.T, users ...string) (rs []archive.Record) {
	t.Helper()
	for i, user := range users {
		e := foldtest.Deliver("c", int64(i+1), user)
		payload, err := e.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		r := records()[0]
		r.Offset, r.Payload = int64(i+1), payload
		rs = append(rs, r)
	}
	return rs
}

// usersIn returns the users of each event of a partition's files, "" for an empty share.
func usersIn(t *testing.T, a *archive.Archive, partition int) (users []string) {
	t.Helper()
	for _, f := range a.Files(partition) {
		if err := a.Check(t.Context(), f); err != nil {
			t.Error(err)
		}
		if err := a.Read(t.Context(), f, func(page []archive.Record) error {
			for _, r := range page {
				e, _ := events.Decode(r.Payload)
				users = append(users, strings.Join(e.Data.UserIDs, ","))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	return users
}

// Children of a split partition filter its files, before and after the manifest lists the files
// under the children. A file is deleted when no partition shares it.
func TestSharedFiles(t *testing.T) {
	a, dir := newArchive(t)
	in := map[int]string{} // a user of each partition
	for n := 0; len(in) < 3; n++ {
		user := foldtest.User(0, n)
		in[events.NewLayout(4, []int{4, 16, 24}).PartitionOf(user)] = user
	}
	write := func(partition, number int, rs []archive.Record) archive.File {
		t.Helper()
		f, err := a.Write(t.Context(), partition, number, each(rs))
		if err == nil {
			err = a.Add(t.Context(), f)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := write(0, 1, delivered(t, in[4], in[16], in[24]))
	want := func(partition int, users ...string) {
		t.Helper()
		opened, err := archive.OpenStore(t.Context(), archive.Folder(dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []*archive.Archive{a, opened} {
			if got := usersIn(t, a, partition); !slices.Equal(got, users) {
				t.Errorf("partition %d has the events of %q, want %q", partition, got, users)
			}
		}
	}
	want(4, in[4], "", "")
	want(8, "", in[16], in[24])
	want(16, "", in[16], "")
	want(24, "", "", in[24])
	want(5)
	if err := os.WriteFile(filepath.Join(dir, "events_p00.00002.ndjson.zst.part"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second := write(16, 2, delivered(t, in[16]))
	if second.Previous != first.SHA256 || !slices.Equal(a.Numbers(), []int{4, 16, 24}) {
		t.Errorf("%+v does not follow %+v; there are files of %v", second, first, a.Numbers())
	}
	want(16, "", in[16], "", in[16])
	want(24, "", "", in[24])
	want(4, in[4], "", "")

	replace := func(partition int) {
		t.Helper()
		f := a.Files(partition)[0]
		next, err := a.Replace(t.Context(), f, func(visit func(*archive.Record) error) error {
			return a.Read(t.Context(), f, func(page []archive.Record) error { return each(page)(visit) })
		})
		if err == nil {
			err = a.Adopt(t.Context(), []archive.File{next})
		}
		if err == nil {
			err = a.RemoveStale(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	files := func(want ...string) {
		t.Helper()
		var got []string
		found, err := filepath.Glob(filepath.Join(dir, "events_*"))
		for _, name := range found {
			got = append(got, strings.TrimSuffix(filepath.Base(name), ".ndjson.zst"))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the files are %v, want %v: %v", got, want, err)
		}
	}
	replace(4)
	files("events_p00.00001", "events_p04.00001.r1", "events_p16.00002")
	replace(16)
	if err := a.Cut(t.Context(), archive.Tail{Partition: 24}); err != nil {
		t.Fatal(err)
	}
	files("events_p04.00001.r1", "events_p16.00001.r1", "events_p16.00002")
	want(4, in[4], "", "")
	want(16, "", in[16], "", in[16])
	want(24)

	manifest := filepath.Join(dir, "manifest.json")
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifest, []byte(strings.Replace(string(text), `"number": 1,`, `"number": 1, "from": 1,`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.OpenStore(t.Context(), archive.Folder(dir)); err == nil || !strings.Contains(err.Error(), "is a file of partition 1, which is not an ancestor of partition 4") {
		t.Errorf("a share of a partition from which it did not come: %v", err)
	}
}

// Cut removes leftovers of a run before a split from both children. After the second child, it
// deletes their file.
func TestFilesLeftFromBeforeASplit(t *testing.T) {
	a, dir := newArchive(t)
	rs := delivered(t, foldtest.User(0, 0), foldtest.User(0, 1))
	for n := range rs {
		f, err := a.Write(t.Context(), 0, n+1, each(rs[n:n+1]))
		if err == nil {
			err = a.Add(t.Context(), f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for n, p := range []int{4, 8} {
		tail := archive.Tail{Partition: p, Known: 1, Lacking: knows}
		if err := errors.Join(a.CheckCut(t.Context(), tail), a.Cut(t.Context(), tail)); err != nil {
			t.Fatal(err)
		}
		if files := a.Files(p); len(files) != 1 || files[0].Number != 1 {
			t.Errorf("partition %d has the files %v", p, files)
		}
		if _, err := os.Stat(filepath.Join(dir, "events_p00.00002.ndjson.zst")); os.IsNotExist(err) != (n == 1) {
			t.Errorf("after partition %d the file is there: %v", p, err)
		}
	}
}

// Split returns the splits that are missing in a log that was restored to an earlier time.
func TestSplitsThatALogLacks(t *testing.T) {
	a, _ := newArchive(t)
	rs := delivered(t, foldtest.User(0, 0))
	for _, p := range []int{0, 16, 5} {
		f, err := a.Write(t.Context(), p, len(a.Files(p))+1, each(rs))
		if err == nil {
			err = a.Add(t.Context(), f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for p, want := range map[int][]int{0: {0, 8}, 8: {8}, 16: nil, 4: nil, 1: {1}, 5: nil, 2: nil} {
		if got := a.Split(p); !slices.Equal(got, want) {
			t.Errorf("for partition %d, %v are to be split, want %v", p, got, want)
		}
	}
	if err, want := (&archive.SplitError{Partitions: []int{0, 4}}).Error(), "run `badged partition split 0 4`, "; !strings.Contains(err, want) {
		t.Errorf("the error is %q, want %q", err, want)
	}
}

// A later run deletes every file that a killed run left: the first file of a partition that was
// split later, a rewritten file, and the file after a cut.
func TestNothingIsLeftUnnamed(t *testing.T) {
	a, dir := newArchive(t)
	rs := delivered(t, foldtest.User(0, 0), foldtest.User(0, 1))
	write := func(partition, number int) archive.File {
		t.Helper()
		f, err := a.Write(t.Context(), partition, number, each(rs))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	add := func(f archive.File) {
		t.Helper()
		if err := a.Add(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 1) // killed before Add; then partition 0 was split, and 8 too
	add(write(16, 1))
	first := write(1, 1)
	add(first)
	if _, err := a.Replace(t.Context(), first, each(rs)); err != nil { // killed before Adopt
		t.Fatal(err)
	}
	add(write(2, 1))
	write(2, 2) // killed before Add; then partition 2 moved
	if err := a.Cut(t.Context(), archive.Tail{Partition: 2}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := archive.Continue(t.Context(), archive.Folder(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.RemoveStale(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if want := []string{"events_p01.00001.ndjson.zst", "events_p16.00001.ndjson.zst", "lock", "manifest.json"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("the files are %v, want %v: %v", left, want, err)
	}
}

// knows is that of a log which has all events.
func knows(context.Context, []archive.Row) ([]archive.Row, error) { return nil, nil }
