package traffic

import (
	"strconv"
	"sync"

	"github.com/badged/badged/internal/cluster"
)

// positions assigns numbers to positions in several databases, because a Target returns a position
// as a number. A number stands for its own position and the positions of all lesser numbers. If
// there is a single database, its position is a number already and is not changed. positions is
// safe for concurrent use.
type positions struct {
	mu sync.Mutex
	// joined has the position of each assigned number, beginning with number 1. The position of a
	// number is the union of all positions for which this number or a lesser number was assigned.
	joined []string
}

// number returns the number for a position. It returns an error if the text is not a position.
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

func (p *positions) position(number int64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number >= 1 && number <= int64(len(p.joined)) {
		return p.joined[number-1]
	}
	return strconv.FormatInt(number, 10)
}
