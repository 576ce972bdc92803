package contest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Measure is one number of one run.
type Measure struct {
	Name  string
	Unit  string
	Value float64
}

// Of returns a measure.
func Of(name, unit string, value float64) Measure { return Measure{name, unit, value} }

// Median returns the middle of values, or the mean of the two in the middle.
// values must not be empty.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Percentile returns the p-th percentile of sorted values (nearest rank), 0 if
// there are none.
func Percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted)) / 100))
	return sorted[max(rank, 1)-1]
}

// FormatNumber formats a number ≥ 0 with about three significant digits and
// thousands separators, such as "59,835" and "3.14".
func FormatNumber(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0.1:
		return strconv.FormatFloat(n, 'g', 2, 64)
	case n < 10:
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 2, 64), ".00")
	case n < 100:
		return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0")
	}
	s := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Milliseconds returns a duration in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ErrWrong means that a number differs from the expected one.
var ErrWrong = errors.New("wrong")

// CheckTotals compares totals with the expected ones and names the first few users with
// a wrong total.
func CheckTotals(got, want map[string]int64) error {
	var wrong []string
	for user, n := range want {
		if m, ok := got[user]; !ok || m != n {
			wrong = append(wrong, fmt.Sprintf("user %s has %d unread, must have %d", user, m, n))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("%d of %d totals are %w: %s", len(wrong), len(want), ErrWrong, strings.Join(wrong[:min(3, len(wrong))], "; "))
}
