package badge

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// CategoryTotals is the total by category, ordered by name and without zeros.
// A slice, since most cached users have one category and a map would take ten
// times the memory.
type CategoryTotals []categoryTotal

type categoryTotal struct {
	name  string
	total int64
}

// NewCategoryTotals returns totals in their order.
func NewCategoryTotals(totals map[string]int64) CategoryTotals {
	s := make(CategoryTotals, 0, len(totals))
	for name, n := range totals {
		s = append(s, categoryTotal{name, n})
	}
	slices.SortFunc(s, func(a, b categoryTotal) int { return cmp.Compare(a.name, b.name) })
	return s
}

// add adds n to the total of a category.
func (s *CategoryTotals) add(name string, n int64) {
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

// ByName returns the totals as a map.
func (s CategoryTotals) ByName() map[string]int64 {
	totals := make(map[string]int64, len(s))
	for _, c := range s {
		totals[c.name] = c.total
	}
	return totals
}

// String returns the totals as a JSON object, always in the same order.
func (s CategoryTotals) String() string {
	b := make([]byte, 0, 32)
	b = append(b, '{')
	for i, c := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, c.name) // invalid UTF-8 is replaced
		b = append(b, ':')
		b = strconv.AppendInt(b, c.total, 10)
	}
	return string(append(b, '}'))
}
