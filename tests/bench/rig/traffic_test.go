package rig

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines string
		reads int64
		want  map[string]int64
	}{
		{"no answers", "a b 1\na b 2\nc b 3\n", 0, map[string]int64{"a": 0, "b": 3, "c": 0}},
		{"an answer has read all before", "a b 1\na b 2\nb a 3\n", 1, map[string]int64{"a": 1, "b": 0}},
		{"but only in its conversation", "a b 1\nc b 2\nb a 3\n", 1, map[string]int64{"a": 1, "b": 1, "c": 0}},
		{"a second answer is a read too", "a b 1\nb a 2\nb a 3\n", 2, map[string]int64{"a": 2, "b": 0}},
		{"a message to oneself has no recipient", "a a 1\na a 2\n", 0, map[string]int64{"a": 0}},
		{"comments and blank lines", "# SRC DST UNIXTS\n\na b 1\n", 0, map[string]int64{"a": 0, "b": 1}},
	} {
		got, err := tallyOf(strings.NewReader(c.lines))
		if err != nil || got.Reads != c.reads || !maps.Equal(got.Unread, c.want) {
			t.Errorf("%s: %d reads, unread %v (%v), want %d, %v", c.name, got.Reads, got.Unread, err, c.reads, c.want)
		}
	}
	for _, lines := range []string{"", "a b\n"} {
		if _, err := tallyOf(strings.NewReader(lines)); err == nil {
			t.Errorf("%q: no error", lines)
		}
	}
}

// The generated traffic is the same everywhere, has the documented size, and a
// heavy tail.
func TestGeneratedTraffic(t *testing.T) {
	made, err := loadTraffic("", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if want := "generated: 60,000 messages and 45,019 reads of 1,885 users"; made.Says != want {
		t.Errorf("the traffic is %s, want %s", made.Says, want)
	}
	again := filepath.Join(t.TempDir(), "again.txt")
	if err := GenerateTraffic(again, generatedMessages); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(made.File)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(again)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("two files of generated traffic differ")
	}
	sent := map[string]int{}
	for line := range strings.Lines(string(first)) {
		sent[strings.Fields(line)[0]]++
	}
	counts := slices.Sorted(maps.Values(sent))
	top := 0
	for _, n := range counts[len(counts)*9/10:] {
		top += n
	}
	if top < generatedMessages*4/10 {
		t.Errorf("the most active tenth of the users wrote %d of %d messages", top, generatedMessages)
	}
}
