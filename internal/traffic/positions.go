package traffic

import (
	"strconv"
	"sync"

	"github.com/badged/badged/internal/shards"
)

// positions numbers positions of several shards, as a Target needs them: a greater number
// names also what the lesser ones do. The position of one database is such a number. It is
// safe for concurrent use.
type positions struct {
	mu sync.Mutex
	// joined has for each number, from 1 on, everything up to it.
	joined []string
}

// number returns the number of a position, and an error if it is none.
func (p *positions) number(position string) (int64, error) {
	if n, err := strconv.ParseInt(position, 10, 64); err == nil {
		return n, nil
	}
	if position == "" {
		return 0, shards.ErrBadPosition
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := ""
	if n := len(p.joined); n > 0 {
		before = p.joined[n-1]
	}
	joined, err := shards.JoinPositions(before, position)
	if err != nil {
		return 0, err
	}
	p.joined = append(p.joined, joined)
	return int64(len(p.joined)), nil
}

// position returns what a number names.
func (p *positions) position(number int64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number >= 1 && number <= int64(len(p.joined)) {
		return p.joined[number-1]
	}
	return strconv.FormatInt(number, 10)
}
