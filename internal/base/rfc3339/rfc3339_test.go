package rfc3339_test

import (
	"testing"
	"time"

	"github.com/badged/badged/internal/base/rfc3339"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]time.Time{
		"2026-01-31T23:59:59Z":      time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC),
		"2026-01-31T03:59:59.25Z":   time.Date(2026, 1, 31, 3, 59, 59, 250e6, time.UTC),
		"2026-02-01T23:58:59+23:59": time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC),
		"2026-01-31T00:00:59-23:59": time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC),
		"2026-01-31T23:59:59+24:00": {}, "2026-01-31T23:59:59-24:00": {}, "2026-01-31T23:59:59+23:60": {}, "2026-01-31T23:59:59+00:60": {},
		"2026-01-31T3:59:59Z": {}, "2026-01-31T23:59:59,5Z": {}, "2026-01-31T23:59:59": {}, "2026-01-31t23:59:59z": {}, "2026-02-30T00:00:00Z": {}, "": {},
		// The zero time, which callers use if there is no time, and the times before and after it.
		"0001-01-01T00:00:00Z": {}, "0001-01-01T00:00:00.000Z": {}, "0001-01-01T01:30:00+01:30": {},
		"0001-01-01T00:00:00.000000001Z": time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC),
		"0000-12-31T23:59:59Z":           time.Date(0, 12, 31, 23, 59, 59, 0, time.UTC),
	} {
		got, err := rfc3339.Parse(s)
		if !got.Equal(want) || (err != nil) != want.IsZero() {
			t.Errorf("%q is %s, %v; want %s", s, got, err, want)
		}
	}
}
