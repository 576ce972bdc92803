package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrBadPosition means that a text does not have the form of a position that [Appender.Append]
// returns.
var ErrBadPosition = errors.New("not a position of the log")

// token is the position of an append to several databases. It has the number of moves in the map,
// the position on each database with new events, and the hints for databases that were unavailable.
// For example, the text "2.a.4711.b.12" means: the map counts 2 moves, the position on database a
// is 4711, and on database b it is 12. In "2.a.4711.b.17@a", database a stores hint 17 for b.
type token struct {
	moves int64
	// positions has an [eventlog.Token] for each database name.
	positions map[string]int64
	hints     []hintRef
}

// hintRef identifies a hint by three values: the database that will get the events of the hint
// (database), the database that stores the hint (holder), and the id of the hint in the holder.
type hintRef struct {
	database, holder string
	id               int64
}

func (h hintRef) String() string { return fmt.Sprintf(".%s.%d@%s", h.database, h.id, h.holder) }

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

// parseToken parses a token. A plain number is the position of a single database.
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

// moves returns the total number of moves and splits in the current map.
func (c *Cluster) moves() int64 { return c.state.Load().moves() }

func (st *state) moves() (n int64) {
	for _, p := range st.places {
		n += p.Revision - 1
	}
	return max(n, 0)
}

// JoinPositions returns a position that covers a and b: when all events up to it are folded, all
// events up to a and up to b are folded. a or b may be empty. A position of a single database is an
// error.
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
		joined.moves = min(joined.moves, t.moves) // the lower number: if the map counts more moves, a partition has moved since a or since b
		for name, id := range t.positions {
			joined.positions[name] = max(joined.positions[name], id)
		}
		joined.hints = joinHints(joined.hints, t.hints)
	}
	return joined.String(), nil
}

// joinHints returns the union of a and b. If two hints have the same recipient (database) and the
// same holder, the union has only the hint with the greater id: [Cluster.replayed] also finds hints
// with lesser ids.
func joinHints(a, b []hintRef) []hintRef {
	for _, h := range b {
		i := slices.IndexFunc(a, func(other hintRef) bool { return other.database == h.database && other.holder == h.holder })
		if i < 0 {
			a = append(a, h)
		} else {
			a[i].id = max(a[i].id, h.id)
		}
	}
	return a
}
