package traffic

import (
	"strconv"
	"sync"

	"github.com/badged/badged/internal/cluster"
)

// positions maps positions of several databases to numbers, because a Target returns numbers.
// A position includes all positions with lesser numbers. The position of a single database is
// already such a number. It is safe for concurrent use.
type positions struct {
	mu sync.Mutex
	// joined has the position for each number, from 1 on. This is the union of all positions
	// up to the number.
	joined []string
}

// number returns a number for a position. It fails if the text is not a position.
func (p *positions) number(position string) (int64, error) {
	if n, err := strconv.ParseInt(position, 10, 64); err == nil {
		return n, nil
	}
	if position == "" {
		return 0, cluster.ErrBadPosition
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := ""
	if n := len(p.joined); n > 0 {
		before = p.joined[n-1]
	}
	joined, err := cluster.JoinPositions(before, position)
	if err != nil {
		return 0, err
	}
	p.joined = append(p.joined, joined)
	return int64(len(p.joined)), nil
}

// position returns the position for a number.
func (p *positions) position(number int64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number >= 1 && number <= int64(len(p.joined)) {
		return p.joined[number-1]
	}
	return strconv.FormatInt(number, 10)
}
