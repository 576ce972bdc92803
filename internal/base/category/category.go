// Package category implements the rules of categories: which paths cover a category, what a
// conversation adds to the numbers of each path, and which level applies to a conversation. The
// fold, the readers of tables and the gateways use the same code, so that their numbers agree.
//
// A category is a path of up to MaxParts parts, joined by slashes. The package does not know
// events, tables or frames. ADR 150 says how paths are stored.
package category

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a category.
const (
	MaxBytes          = 255
	MaxParts          = 8
	MaxPartCharacters = 64
)

// Covers reports whether a path covers a category: the path is equal to the category, or consists
// of the first parts of the category. The same rule is implemented in SQL as badged.covers, and in
// the TypeScript client as covers.
func Covers(path, category string) bool {
	return strings.HasPrefix(category, path) && (len(category) == len(path) || category[len(path)] == '/')
}

// AnyCovers reports whether at least one of the paths covers a category.
func AnyCovers(paths []string, category string) bool {
	for _, path := range paths {
		if Covers(path, category) {
			return true
		}
	}
	return false
}

// Above returns a path without its last part, or "" if the path has only one part. The paths that
// cover a category are the category itself and the results of repeated calls of Above.
func Above(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }

// Tops returns the given paths that no other given path covers, in their order. If a path is given
// twice, it is returned once.
func Tops(paths []string) []string {
	var tops []string
	for i, path := range paths {
		covered := false
		for j, other := range paths {
			covered = covered || Covers(other, path) && (other != path || j < i)
		}
		if !covered {
			tops = append(tops, path)
		}
	}
	return tops
}

// Fault returns why a text is not a valid category, "" if it is valid. The caller must check the
// text for control characters.
func Fault(s string) string {
	if len(s) > MaxBytes {
		return fmt.Sprintf("must have at most %d bytes, has %d", MaxBytes, len(s))
	}
	parts := 1
	for rest, more := s, true; more; parts++ {
		var part string
		switch part, rest, more = strings.Cut(rest, "/"); {
		case part == "":
			return "must have parts with a slash between each two: it has an empty part"
		case len(part) > MaxPartCharacters && utf8.RuneCountInString(part) > MaxPartCharacters:
			return fmt.Sprintf("must have parts of at most %d characters, has one of %d", MaxPartCharacters, utf8.RuneCountInString(part))
		case more && parts == MaxParts:
			return fmt.Sprintf("must have at most %d parts, has %d", MaxParts, strings.Count(s, "/")+1)
		}
	}
	return ""
}
