package webhook

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// ladder is the wait after each failed call in a row.
var ladder = [...]time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// longestWait is longer than any wait: the ladder's last one varies by a tenth.
const longestWait = 27 * time.Hour

// maxRetryAfter limits the wait that an endpoint can ask for.
const maxRetryAfter = 24 * time.Hour

// waitAfter returns the wait after a number of failures in a row (1 or more), and whether the
// ladder has a further step. After its end the last wait repeats. The wait varies by a tenth,
// so that webhooks that failed together are not retried together.
func waitAfter(failures int) (wait time.Duration, more bool) {
	more = failures <= len(ladder)
	wait = ladder[min(failures, len(ladder))-1]
	return shortestWait(failures) + rand.N(wait/5+1), more //nolint:gosec // spreads load, guards nothing
}

// shortestWait returns the shortest result of waitAfter.
func shortestWait(failures int) time.Duration {
	wait := ladder[min(failures, len(ladder))-1]
	return wait - wait/10
}

// retryAfter returns the wait in a Retry-After header, or 0.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	var d time.Duration
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) { // out of range gives the greatest number
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// wait returns how long the webhook must not be called. It ignores a Due further ahead than
// longestWait, which was stored while a clock was wrong.
func (l *Ladder) wait(now time.Time) time.Duration {
	if wait := l.Due.Sub(now); wait <= longestWait {
		return max(wait, 0)
	}
	return 0
}

// succeededBefore records a call that succeeded with earlier settings, and reports whether the
// state has changed. It ignores the call if the earlier settings had another URL, or if a
// later call was recorded or has failed.
func (w *Webhook) succeededBefore(url string, at time.Time, status int) bool {
	if w.URL != url || w.Step > 0 || !at.After(w.LastSuccessAt) || !at.After(w.LastFailureAt) {
		return false
	}
	w.LastSuccessAt, w.LastStatus, w.LastError = at, status, ""
	return true
}
