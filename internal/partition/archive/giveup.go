package archive

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/badged/badged/events"
)

// FileNames selects the files of one partition whose numbers are in a range.
type FileNames struct {
	topic       string
	first, last int
	text        string
}

var namesSyntax = regexp.MustCompile(`^(events_p\d+)\.(\d{5,9})(?:-(\d{5,9}))?(?:\.r\d+)?(?:\.ndjson\.zst)?$`)

// ParseFileNames parses the name of a file, such as events_p03.00002.ndjson.zst, its short form
// events_p03.00002, or a range, such as events_p03.00002-00007.
func ParseFileNames(text string) (FileNames, error) {
	m := namesSyntax.FindStringSubmatch(text)
	if m == nil {
		return FileNames{}, fmt.Errorf("%q does not name a file of an archive: want a name such as events_p03.00002, or events_p03.00002-00007 for several", text)
	}
	n := FileNames{topic: m[1], text: text}
	n.first, _ = strconv.Atoi(m[2]) // at most nine digits
	if n.last = n.first; m[3] != "" {
		n.last, _ = strconv.Atoi(m[3])
	}
	if n.last < n.first {
		return FileNames{}, fmt.Errorf("the range %q ends before it begins", text)
	}
	return n, nil
}

// String returns the text that was parsed.
func (n FileNames) String() string { return n.text }

// Has reports whether a file is selected.
func (n FileNames) Has(f File) bool {
	return n.topic == events.Topic(f.Whole().Partition) && n.first <= f.Number && f.Number <= n.last
}

// Ranges returns the short names of files. It joins files with consecutive numbers to a range, such
// as events_p03.00002-00007.
func Ranges(files []File) (names []string) {
	for i := 0; i < len(files); {
		partition, first := files[i].Whole().Partition, files[i].Number
		last := first
		for i++; i < len(files) && files[i].Whole().Partition == partition && files[i].Number == last+1; i++ {
			last++
		}
		name := strings.TrimSuffix(FileName(partition, first), extension)
		if last > first {
			name = fmt.Sprintf("%s-%05d", name, last)
		}
		names = append(names, name)
	}
	return names
}

// GiveUp durably replaces the first len(files) entries of a partition in the manifest by `files`,
// in which the caller has set GivenUp for the lost files. GiveUp retains the later entries of the
// partition.
func (a *Archive) GiveUp(ctx context.Context, partition int, files []File) error {
	a.divide(partition)
	for _, f := range a.ownFiles(partition) {
		if f.Number > len(files) {
			files = append(files, f)
		}
	}
	a.replace(partition, files)
	a.relink()
	return a.save(ctx)
}

// Discard deletes the manifest of an archive that Create has just created, unless the manifest
// lists files by now.
func (a *Archive) Discard(ctx context.Context) error {
	if len(a.manifest.Files) > 0 {
		return nil
	}
	return a.store.Remove(ctx, manifestName)
}

// HowToGiveUp returns the shell command that declares files lost.
func HowToGiveUp(files []File) string {
	return fmt.Sprintf("`badged archive --give-up %s --to DIR`", strings.Join(Ranges(files), ","))
}
