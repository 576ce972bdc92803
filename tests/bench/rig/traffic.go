package rig

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/badged/badged/tests/bench/measure"
)

// traffic is a file to load and the expected result.
type traffic struct {
	File string
	Says string
	Want Tally
}

// Tally is the expected result of a file of messages.
type Tally struct {
	Messages, Reads int64
	// Unread has every user in the file.
	Unread map[string]int64
}

// loadTraffic reads file or, if it is empty, generates one in dir.
func loadTraffic(file, dir string) (traffic, error) {
	t := traffic{File: file}
	kind := "recorded, " + filepath.Base(file)
	if file == "" {
		t.File = filepath.Join(dir, "traffic.txt")
		kind = "generated"
		if err := GenerateTraffic(t.File, generatedMessages); err != nil {
			return t, fmt.Errorf("generate traffic: %w", err)
		}
	}
	f, err := os.Open(t.File)
	if err != nil {
		return t, fmt.Errorf("open the traffic: %w", err)
	}
	defer f.Close()
	if t.Want, err = tallyOf(f); err != nil {
		return t, fmt.Errorf("read %s: %w", t.File, err)
	}
	t.Says = fmt.Sprintf("%s: %s messages and %s reads of %s users", kind,
		measure.FormatNumber(float64(t.Want.Messages)), measure.FormatNumber(float64(t.Want.Reads)), measure.FormatNumber(float64(len(t.Want.Unread))))
	return t, nil
}

// end is one end of a conversation.
type end struct{ user, peer string }

// tallyOf computes the result of lines SRC DST UNIXTS without the product's code.
// The rule is that a sender has read everything received before in that
// conversation. A message to oneself has no recipient.
func tallyOf(r io.Reader) (Tally, error) {
	t := Tally{Unread: map[string]int64{}}
	waiting := map[end]int64{} // set by the first message received
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 {
			return t, fmt.Errorf("want lines SRC DST UNIXTS, found %q", lines.Text())
		}
		src, dst := fields[0], fields[1]
		t.Messages++
		t.Unread[src] += 0
		t.Unread[dst] += 0
		if src == dst {
			continue
		}
		if _, ok := waiting[end{src, dst}]; ok {
			t.Reads++
			waiting[end{src, dst}] = 0
		}
		waiting[end{dst, src}]++
	}
	if t.Messages == 0 && lines.Err() == nil {
		return t, errors.New("there is no message in it")
	}
	for in, n := range waiting {
		t.Unread[in.user] += n
	}
	return t, lines.Err()
}

// Users returns every user in the file, in order.
func (t Tally) Users() []string {
	users := make([]string, 0, len(t.Unread))
	for user := range t.Unread {
		users = append(users, user)
	}
	slices.Sort(users)
	return users
}

// Total returns the sum of unread counts and the number of users with any.
func (t Tally) Total() (unread, users int64) {
	for _, n := range t.Unread {
		unread += n
		if n > 0 {
			users++
		}
	}
	return unread, users
}
