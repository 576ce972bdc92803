package badge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/internal/base/category"
)

// MaxInline is the maximum number of paths that are stored in the row of their user. A user
// with more paths has one row per path, so that an event does not rewrite all paths.
const MaxInline = 16

// Paths has the numbers of a user by category path, and the levels that the user has set for
// paths. The numbers exclude what memberships add. Either all paths are stored inline, in the
// user's row, or each path is stored in a row of its own.
type Paths struct {
	// If the paths are stored inline, inline has all paths in the order of their names. If each
	// path has a row, inline is nil, and rows has the paths whose rows were loaded for the events
	// that are folded now. rows also has paths that were looked up and have no row, since they have
	// neither a number nor a level.
	inline []*Path
	rows   map[string]*Path
	// whole is true if rows has every path that has a number or a level.
	whole bool
	// live is how many paths have a number or a level.
	live int
	// Levels has the levels by path, nil if none is set. If paths have rows, Levels may lack
	// some levels until LevelsLoaded is true.
	Levels       category.Levels
	LevelsLoaded bool
	// Moved is true if a level changed since the user's row was read or written. Cleared is true
	// if the next write must delete all stored rows of paths, for example because the paths
	// are inline again.
	Moved, Cleared bool
	// Touched lists the paths that changed since the last write. One path may be listed twice,
	// as two copies.
	Touched []*Path
}

// Path is a path with its numbers.
type Path struct {
	Name string
	category.Numbers
	touched bool
	// Stored is true if the path has a row of its own.
	Stored bool
}

// HasRows reports whether each path has a row of its own.
func (s *Paths) HasRows() bool { return s.rows != nil }

// Rows returns how many paths have rows of their own.
func (s *Paths) Rows() int64 {
	if s.rows == nil {
		return 0
	}
	return int64(s.live)
}

// RestoreRows initializes s for a user with n rows of paths, none of them loaded.
func (s *Paths) RestoreRows(n int64) { s.rows, s.live = map[string]*Path{}, int(n) }

// Knows reports whether a path needs no loading: it is loaded, or the paths are inline.
func (s *Paths) Knows(path string) bool { return s.rows == nil || s.whole || s.rows[path] != nil }

// Whole records that the rows of all paths are loaded.
func (s *Paths) Whole() { s.whole, s.LevelsLoaded = true, true }

// Rewrite makes the next write delete all stored rows of paths and insert the current ones.
func (s *Paths) Rewrite() {
	s.Cleared = true
	for _, p := range s.AllRows() {
		p.Stored = false
		s.find(p.Name)
	}
}

// AllRows returns the paths that need rows, in the order of their names. All rows must be
// loaded.
func (s *Paths) AllRows() []*Path {
	var all []*Path
	for _, p := range s.rows {
		if s.Has(p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, byName)
	return all
}

// Expect adds an empty path whose row is about to be read. If there is a row, the caller must
// then call Load.
func (s *Paths) Expect(path string) {
	if !s.Knows(path) {
		name := strings.Clone(path)
		s.rows[name] = &Path{Name: name}
	}
}

// Load sets a path to the content of its row.
func (s *Paths) Load(path string, n category.Numbers, level string) {
	s.rows[path] = &Path{Name: path, Numbers: n, Stored: true}
	s.restoreLevel(path, level)
}

func (s *Paths) restoreLevel(path, level string) {
	if level == "" {
		return
	}
	if s.Levels == nil {
		s.Levels = category.Levels{}
	}
	s.Levels[path] = level
}

// Restore parses the paths in the row of a user. stored is a result of String, possibly
// reformatted by jsonb.
func Restore(stored string) (s Paths, err error) {
	err = EachStored(stored, func(name string, n category.Numbers, level string) {
		s.inline = append(s.inline, &Path{Name: name, Numbers: n})
		s.live++
		s.restoreLevel(name, level)
	})
	slices.SortFunc(s.inline, byName)
	return s, err
}

// EachStored calls visit for each path in a JSON object. stored is a result of String,
// possibly reformatted by json or jsonb.
func EachStored(stored string, visit func(name string, n category.Numbers, level string)) error {
	d := jsontext.NewDecoder(strings.NewReader(stored), jsontext.AllowDuplicateNames(true))
	if start, err := d.ReadToken(); err != nil || start.Kind() != '{' {
		return fmt.Errorf("invalid paths %.100q: want a JSON object", stored)
	}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		numbers, err := d.ReadValue()
		if err != nil {
			return err
		}
		n, level, err := ParseNumbers(string(numbers))
		if err != nil {
			return fmt.Errorf("category %q: %w", name, err)
		}
		visit(name, n, level)
	}
	_, err := d.ReadToken()
	return err
}

func byName(a, b *Path) int { return cmp.Compare(a.Name, b.Name) }

// find returns a path that is about to change, and adds it to Touched. If paths have rows, the path
// must have been loaded or passed to Expect before; otherwise find panics.
func (s *Paths) find(path string) *Path {
	var p *Path
	if s.rows != nil {
		if p = s.rows[path]; p == nil && s.whole {
			p = &Path{Name: strings.Clone(path)}
			s.rows[p.Name] = p
		}
		if p == nil {
			panic(fmt.Sprintf("badge: path %q of a user with rows of paths is not loaded", path))
		}
	} else {
		i, found := slices.BinarySearchFunc(s.inline, path, func(p *Path, name string) int { return cmp.Compare(p.Name, name) })
		if !found {
			s.inline = slices.Insert(s.inline, i, &Path{Name: strings.Clone(path)})
		}
		p = s.inline[i]
	}
	if !p.touched {
		p.touched = true
		s.Touched = append(s.Touched, p)
	}
	return p
}

// Has reports whether a path has a number or a level.
func (s *Paths) Has(p *Path) bool { return p.Numbers != category.Numbers{} || s.Levels[p.Name] != "" }

// change applies f to a path and updates live, the number of paths with a number or a level.
func (s *Paths) change(path string, f func(*Path)) {
	p := s.find(path)
	if s.Has(p) {
		s.live--
	}
	if f(p); s.Has(p) {
		s.live++
	}
}

// add adds n to a category and to every path above it.
func (s *Paths) add(path string, n category.Numbers) {
	if n == (category.Numbers{}) {
		return
	}
	for path := path; path != ""; path = category.Above(path) {
		s.change(path, func(p *Path) { p.Add(n) })
	}
}

func (s *Paths) set(path, level string) {
	s.Moved = true
	s.change(path, func(*Path) {
		if delete(s.Levels, path); level != category.LevelDefault {
			s.restoreLevel(strings.Clone(path), level)
		}
	})
}

// place moves paths between the two forms of storage. Beyond MaxInline paths, each path gets a row
// of its own. When no path has a number or a level any more, later paths are stored inline again.
// place is called after each event, so that the rows do not depend on how events are batched.
func (s *Paths) place() {
	switch {
	case s.rows == nil && s.live > MaxInline:
		s.rows = make(map[string]*Path, len(s.inline))
		for _, p := range s.inline {
			s.rows[p.Name] = p
			s.find(p.Name)
		}
		s.inline = nil
		s.Whole()
	case s.rows != nil && s.live == 0:
		s.rows, s.whole, s.Cleared = nil, false, true
	}
}

// Current returns the current numbers of the path with the name of p; p may be an outdated
// copy. toRow reports whether p itself is current and paths have rows, so that the numbers
// must be written to the row of p.
func (s *Paths) Current(p *Path) (n category.Numbers, toRow bool) {
	if s.rows != nil {
		now := s.rows[p.Name]
		if now == nil {
			return n, false
		}
		return now.Numbers, now == p
	}
	if i, found := slices.BinarySearchFunc(s.inline, p, byName); found {
		n = s.inline[i].Numbers
	}
	return n, false
}

// settle marks the paths as equal to their rows, after a write.
func (s *Paths) settle() {
	for _, p := range s.Touched {
		p.touched = false
		p.Stored = s.rows != nil && s.Has(p)
	}
	if len(s.Touched) > 0 && s.rows == nil {
		s.inline = slices.DeleteFunc(s.inline, func(p *Path) bool { return !s.Has(p) })
	}
	clear(s.Touched)
	s.Touched, s.Moved, s.Cleared = s.Touched[:0], false, false
}

// loaded returns the number of paths in memory that UserWeight does not include: all but one.
func (s *Paths) loaded() int { return max(0, len(s.inline)+len(s.rows)-1) }

// ByName returns the numbers of all paths that have a number. If paths have rows, all must be
// loaded.
func (s *Paths) ByName() map[string]category.Numbers {
	all := make(map[string]category.Numbers, len(s.inline)+len(s.rows))
	add := func(p *Path) {
		if p.Numbers != (category.Numbers{}) {
			all[p.Name] = p.Numbers
		}
	}
	for _, p := range s.inline {
		add(p)
	}
	for _, p := range s.rows {
		add(p)
	}
	return all
}

// Clone returns a deep copy.
func (s *Paths) Clone() Paths {
	c := Paths{live: s.live, Levels: maps.Clone(s.Levels), LevelsLoaded: s.LevelsLoaded, whole: s.whole}
	for _, p := range s.inline {
		c.inline = append(c.inline, &Path{Name: p.Name, Numbers: p.Numbers})
	}
	if s.rows != nil {
		c.rows = make(map[string]*Path, len(s.rows))
		for name, p := range s.rows {
			c.rows[name] = &Path{Name: name, Numbers: p.Numbers, Stored: p.Stored}
		}
	}
	return c
}

// String returns the inline paths as a JSON object in the order of their names, for the user's
// row. AppendNumbers describes the values.
func (s *Paths) String() string {
	b := []byte{'{'}
	for _, p := range s.inline {
		if !s.Has(p) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, p.Name) // invalid UTF-8 is replaced
		b = AppendNumbers(append(b, ':'), p.Numbers, s.Levels[p.Name])
	}
	return string(append(b, '}'))
}

// storedNumbers is how many numbers of a path are stored.
const storedNumbers = 7

// AppendNumbers appends the stored form of a path, a JSON array of its numbers. If the path has a
// level, the array has all numbers and then the level; otherwise zeros at the end are omitted. The
// array has Total - Unseen instead of Unseen, since this difference is 0 for most paths.
func AppendNumbers(b []byte, n category.Numbers, level string) []byte {
	all := [storedNumbers]int64{n.Total, n.UnreadConversations, n.Mentions, n.Total - n.Unseen, n.Muted.Total, n.Muted.Conversations, n.Marked}
	last := storedNumbers
	for level == "" && last > 0 && all[last-1] == 0 {
		last--
	}
	b = append(b, '[')
	for i, number := range all[:last] {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, number, 10)
	}
	if level != "" {
		b = append(append(append(b, `, "`...), level...), '"')
	}
	return append(b, ']')
}

// ParseNumbers parses the result of AppendNumbers, possibly reformatted by jsonb.
func ParseNumbers(stored string) (n category.Numbers, level string, err error) {
	var all [storedNumbers]int64
	i := -1
	for field := range strings.SplitSeq(strings.Trim(stored, "[]"), ",") {
		i++
		switch field = strings.TrimSpace(field); {
		case field == "" && i == 0:
		case strings.HasPrefix(field, `"`):
			level = strings.Trim(field, `"`)
		case i < storedNumbers:
			if all[i], err = strconv.ParseInt(field, 10, 64); err != nil {
				return n, "", err
			}
		}
	}
	return category.Numbers{
		Total: all[0], UnreadConversations: all[1], Mentions: all[2], Unseen: all[0] - all[3],
		Muted: category.Muted{Total: all[4], Conversations: all[5]}, Marked: all[6],
	}, level, nil
}

// The row of a user has columns for Total, Mentions and UnreadConversations. One column,
// extra, has all other numbers, in the form of EncodeExtra, which is "" for most users.

// EncodeExtra returns the stored form of the numbers that have no column of their own, "" if all
// stored values are 0. Like AppendNumbers, it stores Total - Unseen instead of Unseen.
func EncodeExtra(n category.Numbers) string {
	if n.Unseen == n.Total && n.Muted == (category.Muted{}) && n.Marked == 0 {
		return ""
	}
	return fmt.Sprintf("[%d, %d, %d, %d]", n.Total-n.Unseen, n.Muted.Total, n.Muted.Conversations, n.Marked)
}

// DecodeExtra parses the result of EncodeExtra into n, whose Total must be set.
func DecodeExtra(stored string, n *category.Numbers) error {
	n.Unseen, n.Muted, n.Marked = n.Total, category.Muted{}, 0
	if stored == "" {
		return nil
	}
	var all []int64
	if err := json.Unmarshal([]byte(stored), &all); err != nil {
		return err
	}
	if len(all) != 4 {
		return fmt.Errorf("invalid extra numbers %.100s of a badge: want four", stored)
	}
	n.Unseen, n.Muted, n.Marked = n.Total-all[0], category.Muted{Total: all[1], Conversations: all[2]}, all[3]
	return nil
}
