package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// traffic is a file to load and the expected result.
type traffic struct {
	file string
	says string
	want tally
}

// tally is the expected result of a file of messages.
type tally struct {
	messages, reads int64
	// unread has every user in the file.
	unread map[string]int64
}

// loadTraffic reads file or, if it is empty, generates one in dir.
func loadTraffic(file, dir string) (traffic, error) {
	t := traffic{file: file}
	kind := "recorded, " + filepath.Base(file)
	if file == "" {
		t.file = filepath.Join(dir, "traffic.txt")
		kind = "generated"
		if err := generateTraffic(t.file, generatedMessages); err != nil {
			return t, fmt.Errorf("generate traffic: %w", err)
		}
	}
	f, err := os.Open(t.file)
	if err != nil {
		return t, fmt.Errorf("open the traffic: %w", err)
	}
	defer f.Close()
	if t.want, err = tallyOf(f); err != nil {
		return t, fmt.Errorf("read %s: %w", t.file, err)
	}
	t.says = fmt.Sprintf("%s: %s messages and %s reads of %s users", kind,
		formatNumber(float64(t.want.messages)), formatNumber(float64(t.want.reads)), formatNumber(float64(len(t.want.unread))))
	return t, nil
}

// end is one end of a conversation.
type end struct{ user, peer string }

// tallyOf computes the result of lines SRC DST UNIXTS without the product's code.
// The rule is that a sender has read everything received before in that
// conversation. A message to oneself has no recipient.
func tallyOf(r io.Reader) (tally, error) {
	t := tally{unread: map[string]int64{}}
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
		t.messages++
		t.unread[src] += 0
		t.unread[dst] += 0
		if src == dst {
			continue
		}
		if _, ok := waiting[end{src, dst}]; ok {
			t.reads++
			waiting[end{src, dst}] = 0
		}
		waiting[end{dst, src}]++
	}
	if t.messages == 0 && lines.Err() == nil {
		return t, errors.New("there is no message in it")
	}
	for in, n := range waiting {
		t.unread[in.user] += n
	}
	return t, lines.Err()
}

// users returns every user in the file, in order.
func (t tally) users() []string {
	users := make([]string, 0, len(t.unread))
	for user := range t.unread {
		users = append(users, user)
	}
	slices.Sort(users)
	return users
}

// total returns the sum of unread counts and the number of users with any.
func (t tally) total() (unread, users int64) {
	for _, n := range t.unread {
		unread += n
		if n > 0 {
			users++
		}
	}
	return unread, users
}

// errWrong means that a number differs from the expected one.
var errWrong = errors.New("wrong")

// check compares totals with the expected ones and names the first few users with
// a wrong total.
func check(got, want map[string]int64) error {
	var wrong []string
	for user, n := range want {
		if m, ok := got[user]; !ok || m != n {
			wrong = append(wrong, fmt.Sprintf("user %s has %d unread, must have %d", user, m, n))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("%d of %d totals are %w: %s", len(wrong), len(want), errWrong, strings.Join(wrong[:min(3, len(wrong))], "; "))
}
