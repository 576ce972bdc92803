package pgsession_test

import (
	"testing"
	"time"

	"github.com/badged/badged/internal/pg/pgsession"
)

// A reader that blocks for a minute delays archiving by at most another minute. While a
// reader blocks for hours, attempts are rare, so they rarely make other readers wait.
func TestLockPauses(t *testing.T) {
	attempts, waited, pause := 0, time.Duration(0), time.Duration(0)
	for waited < 6*time.Hour {
		last := waited
		pause = pgsession.NextLockPause(pause)
		attempts++
		if waited += pause; pause > max(last+pgsession.FirstLockPause, pgsession.FirstLockPause) {
			t.Errorf("after %v it waits for %v", last, pause)
		}
	}
	if attempts > 6*120+12 {
		t.Errorf("in 6 hours there are %d attempts", attempts)
	}
}
