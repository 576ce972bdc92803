// Package rfc3339 reads times strictly.
//
// It does not know who compares the times.
package rfc3339

import (
	"errors"
	"strings"
	"time"
)

var errForm = errors.New("a time is not in the form of RFC 3339")

// Parse returns a time in the form of RFC 3339. [time.Parse] takes more: an offset of
// +24:00 or of 60 minutes, an hour of one digit, a comma.
func Parse(s string) (time.Time, error) {
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
