package logread

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// snapshot is a Postgres snapshot: it shows which transactions had ended when a statement ran.
type snapshot struct {
	// Transactions with ids below xmin have ended. Transactions with ids from xmax on have not
	// ended, or have not begun.
	xmin, xmax int64
	// open has the transactions between xmin and xmax that have not ended, in ascending order.
	open []int64
}

// parseSnapshot parses the text of a pg_snapshot, such as "10:20:10,14".
func parseSnapshot(text string) (s snapshot, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return snapshot{}, fmt.Errorf("parse the snapshot %q: want three parts", text)
	}
	number := func(text string) (n int64) {
		var fault error
		n, fault = strconv.ParseInt(text, 10, 64)
		err = errors.Join(err, fault)
		return n
	}
	s.xmin, s.xmax = number(parts[0]), number(parts[1])
	for open := range strings.SplitSeq(parts[2], ",") {
		if parts[2] != "" {
			s.open = append(s.open, number(open))
		}
	}
	if err != nil {
		return snapshot{}, fmt.Errorf("parse the snapshot %q: %w", text, err)
	}
	slices.Sort(s.open)
	return s, nil
}

// ended reports whether a transaction had ended, by commit or rollback.
func (s *snapshot) ended(id int64) bool {
	if id < s.xmin || id >= s.xmax {
		return id < s.xmin
	}
	_, open := slices.BinarySearch(s.open, id)
	return !open
}
