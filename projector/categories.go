package projector

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// categoryTotals is the total by category, in the order of names and without
// zeros. Most users have one, and there are as many of these as users are
// remembered: a map would take ten times the memory.
type categoryTotals []categoryTotal

type categoryTotal struct {
	name  string
	total int64
}

// totalsOf returns totals by category in their order.
func totalsOf(totals map[string]int64) categoryTotals {
	s := make(categoryTotals, 0, len(totals))
	for name, n := range totals {
		s = append(s, categoryTotal{name, n})
	}
	slices.SortFunc(s, func(a, b categoryTotal) int { return cmp.Compare(a.name, b.name) })
	return s
}

// add adds n to the total of a category.
func (s *categoryTotals) add(name string, n int64) {
	i, found := slices.BinarySearchFunc(*s, name, func(c categoryTotal, name string) int { return cmp.Compare(c.name, name) })
	switch {
	case !found && n != 0:
		*s = slices.Insert(*s, i, categoryTotal{name, n})
	case found && (*s)[i].total+n == 0:
		*s = slices.Delete(*s, i, i+1)
	case found:
		(*s)[i].total += n
	}
}

// byName returns the totals by the names of categories.
func (s categoryTotals) byName() map[string]int64 {
	totals := make(map[string]int64, len(s))
	for _, c := range s {
		totals[c.name] = c.total
	}
	return totals
}

// String returns the totals as a JSON object, always in one order.
func (s categoryTotals) String() string {
	b := make([]byte, 0, 32)
	b = append(b, '{')
	for i, c := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, c.name) // names are valid UTF-8, or become so
		b = append(b, ':')
		b = strconv.AppendInt(b, c.total, 10)
	}
	return string(append(b, '}'))
}
