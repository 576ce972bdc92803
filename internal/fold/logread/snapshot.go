package logread

import (
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
	numbers := parts[:2]
	if parts[2] != "" {
		numbers = append(numbers, strings.Split(parts[2], ",")...)
	}
	for i, number := range numbers {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return snapshot{}, fmt.Errorf("parse the snapshot %q: %w", text, err)
		}
		switch i {
		case 0:
			s.xmin = n
		case 1:
			s.xmax = n
		default:
			s.open = append(s.open, n)
		}
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
