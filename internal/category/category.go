// Package category has the rules of categories: which one covers another, what a
// conversation adds to each, and which level applies to it. The fold, readers of tables and
// gateways use these, so that all count alike.
//
// A category is a path of up to MaxParts parts that are joined by a slash. It does not know
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

// Covers reports whether a path covers a category: it is the same or begins it, part by
// part. SQL has the rule as badged.covers, and the client in TypeScript as covers.
func Covers(path, category string) bool {
	return strings.HasPrefix(category, path) && (len(category) == len(path) || category[len(path)] == '/')
}

// AnyCovers reports whether one of some paths covers a category.
func AnyCovers(paths []string, category string) bool {
	for _, path := range paths {
		if Covers(path, category) {
			return true
		}
	}
	return false
}

// Above returns the path above another, "" above one part. All paths that cover a category
// are it, and what is above each.
func Above(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }

// Tops returns those of some paths, in their order, that none of the others covers.
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

// Fault returns why a text without control characters is no category, or "".
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
