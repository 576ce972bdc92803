package shards

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrBadPosition is returned for a position that no append returned.
var ErrBadPosition = errors.New("not a position of the log")

// token names the position of an append over several shards: how many moves of
// partitions the map had, the position on each shard that was appended to, and the hints for
// shards that were away. As text it is "2.a.4711.b.12", in the order of the names, or
// "2.a.4711.b.17@a" if a stores hint 17 for b.
type token struct {
	moves int64
	// positions are by the names of the shards, as [eventlog.Token].
	positions map[string]int64
	hints     []hintRef
}

// hintRef names a hint: the shard that lacks its events, the one that stores it, and its id there.
type hintRef struct {
	shard, on string
	id        int64
}

func (h hintRef) String() string { return fmt.Sprintf(".%s.%d@%s", h.shard, h.id, h.on) }

func (t token) String() string {
	names := make([]string, 0, len(t.positions))
	for name := range t.positions {
		names = append(names, name)
	}
	slices.Sort(names)
	text := strconv.FormatInt(t.moves, 10)
	for _, name := range names {
		text += fmt.Sprintf(".%s.%d", name, t.positions[name])
	}
	for _, h := range t.hints {
		text += h.String()
	}
	return text
}

// parseToken reads a token. A plain number is that of one database.
func parseToken(text string) (token, error) {
	parts := strings.Split(text, ".")
	t := token{positions: map[string]int64{}}
	var err error
	if t.moves, err = strconv.ParseInt(parts[0], 10, 64); err != nil || t.moves < 0 || len(parts)%2 == 0 {
		return token{}, ErrBadPosition
	}
	for i := 1; i < len(parts); i += 2 {
		number, on, isHint := strings.Cut(parts[i+1], "@")
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil || id < 0 || parts[i] == "" || isHint && on == "" {
			return token{}, ErrBadPosition
		}
		if isHint {
			t.hints = append(t.hints, hintRef{parts[i], on, id})
		} else {
			t.positions[parts[i]] = id
		}
	}
	return t, nil
}

// moves counts the moves of partitions that the map knows.
func (c *Cluster) moves() int64 { return c.state.Load().moves() }

func (st *state) moves() (n int64) {
	for _, p := range st.places {
		n += p.Revision - 1
	}
	return max(n, 0)
}

// JoinPositions returns a position at which everything at both positions is folded. Either
// may be empty, and neither may be that of one database.
func JoinPositions(a, b string) (string, error) {
	var joined token
	for _, text := range []string{a, b} {
		if text == "" {
			continue
		}
		t, err := parseToken(text)
		if err != nil || len(t.positions)+len(t.hints) == 0 {
			return "", fmt.Errorf("%w: %q", ErrBadPosition, text)
		}
		if joined.positions == nil {
			joined = t
			continue
		}
		joined.moves = min(joined.moves, t.moves) // an old map is compared with the present
		for shard, id := range t.positions {
			joined.positions[shard] = max(joined.positions[shard], id)
		}
		joined.hints = joinHints(joined.hints, t.hints)
	}
	return joined.String(), nil
}

// joinHints returns the union of both; of hints for the same shard on the same other, the later.
func joinHints(a, b []hintRef) []hintRef {
	for _, h := range b {
		i := slices.IndexFunc(a, func(other hintRef) bool { return other.shard == h.shard && other.on == h.on })
		if i < 0 {
			a = append(a, h)
		} else {
			a[i].id = max(a[i].id, h.id)
		}
	}
	return a
}
