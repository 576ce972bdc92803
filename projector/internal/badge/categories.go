package badge

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// CategoryTotals is the total by category, and how many conversations add to it,
// ordered by name and without zeros. A slice, since most cached users have one
// category and a map would take ten times the memory.
type CategoryTotals []categoryTotal

type categoryTotal struct {
	name string
	// conversations is how many conversations add to total: it is 0 only if total is.
	total, conversations int64
}

// NewCategoryTotals returns totals in their order, with the conversations that add to
// each.
func NewCategoryTotals(totals, conversations map[string]int64) CategoryTotals {
	s := make(CategoryTotals, 0, len(totals))
	for name, n := range totals {
		s = append(s, categoryTotal{name, n, conversations[name]})
	}
	slices.SortFunc(s, func(a, b categoryTotal) int { return cmp.Compare(a.name, b.name) })
	return s
}

// add adds n to the total of a category, and to the conversations that add to it.
func (s *CategoryTotals) add(name string, n, conversations int64) {
	i, found := slices.BinarySearchFunc(*s, name, func(c categoryTotal, name string) int { return cmp.Compare(c.name, name) })
	switch {
	case !found && n != 0:
		*s = slices.Insert(*s, i, categoryTotal{name, n, conversations})
	case found && (*s)[i].total+n == 0:
		*s = slices.Delete(*s, i, i+1)
	case found:
		(*s)[i].total += n
		(*s)[i].conversations += conversations
	}
}

// Conversations returns how many conversations add to the total.
func (s CategoryTotals) Conversations() (n int64) {
	for _, c := range s {
		n += c.conversations
	}
	return n
}

// ConversationsByName returns how many conversations add to each total.
func (s CategoryTotals) ConversationsByName() map[string]int64 {
	conversations := make(map[string]int64, len(s))
	for _, c := range s {
		conversations[c.name] = c.conversations
	}
	return conversations
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
	return s.object(func(c *categoryTotal) int64 { return c.total })
}

// ConversationsString returns how many conversations add to each total as a JSON object,
// always in the same order, or "" if at most one category has a total: then all do.
func (s CategoryTotals) ConversationsString() string {
	if len(s) <= 1 {
		return ""
	}
	return s.object(func(c *categoryTotal) int64 { return c.conversations })
}

// object returns a JSON object with a number for each category.
func (s CategoryTotals) object(number func(*categoryTotal) int64) string {
	b := make([]byte, 0, 32)
	b = append(b, '{')
	for i := range s {
		c := &s[i]
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, c.name) // invalid UTF-8 is replaced
		b = append(b, ':')
		b = strconv.AppendInt(b, number(c), 10)
	}
	return string(append(b, '}'))
}
