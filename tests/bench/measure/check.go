package measure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrWrong means that a number differs from the expected one.
var ErrWrong = errors.New("wrong")

// Check compares totals with the expected ones and names the first few users with
// a wrong total.
func Check(got, want map[string]int64) error {
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
