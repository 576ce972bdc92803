// Package rfc3339 reads times strictly.
//
// The package does not know what its callers use the times for.
package rfc3339

import (
	"errors"
	"strings"
	"time"
)

var (
	errForm = errors.New("a time is not in the form of RFC 3339")
	errZero = errors.New("a time is the first moment of the year 1")
)

// Parse parses a time in the format of RFC 3339. It refuses the zero [time.Time], since callers
// would take it for an absent time: a permission with this end time would never end.
func Parse(s string) (time.Time, error) {
	t, err := ParseAny(s)
	if err == nil && t.IsZero() {
		return time.Time{}, errZero
	}
	return t, err
}

// ParseAny is like Parse, but accepts the zero time, which stored data uses for an absent time.
// Unlike [time.Parse], it refuses texts that RFC 3339 does not allow: an offset of 24 hours or with
// 60 minutes, an hour with one digit, and a comma before the fraction.
func ParseAny(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, err
	}
	const hourEnds = len("2026-01-31T23")
	offset := strings.HasSuffix(s, "Z") || s[len(s)-len("23:59"):] <= "23:59" && s[len(s)-len("59"):] <= "59"
	if s[hourEnds] != ':' || strings.Contains(s, ",") || !offset {
		return time.Time{}, errForm
	}
	return t, nil
}
