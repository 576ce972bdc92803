package webhook

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// ladder is how long to wait after each failed call in a row.
var ladder = [...]time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// longestWait is longer than any wait: the ladder's last, which varies by a tenth.
const longestWait = 27 * time.Hour

// maxRetryAfter bounds what a receiver can ask for.
const maxRetryAfter = 24 * time.Hour

// waitAfter returns the wait after that many failures in a row, at least 1, and
// whether the ladder goes on. Past its end the last wait repeats. The wait
// varies by a tenth, so that webhooks that failed together do not come back
// together.
func waitAfter(failures int) (wait time.Duration, more bool) {
	more = failures <= len(ladder)
	wait = ladder[min(failures, len(ladder))-1]
	return shortestWait(failures) + rand.N(wait/5+1), more //nolint:gosec // spreads load, guards nothing
}

// shortestWait returns the least that waitAfter returns.
func shortestWait(failures int) time.Duration {
	wait := ladder[min(failures, len(ladder))-1]
	return wait - wait/10
}

// retryAfter returns how long an answer asks to wait; 0 if it does not.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	var d time.Duration
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil || errors.Is(err, strconv.ErrRange) { // then it is the greatest
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// wait returns how long the webhook is not called yet. A moment that no wait leads to was
// stored while a clock was wrong.
func (l *Ladder) wait(now time.Time) time.Duration {
	if wait := l.Due.Sub(now); wait <= longestWait {
		return max(wait, 0)
	}
	return 0
}

// succeededBefore takes in that a call with earlier settings succeeded, and returns whether
// that is news. It is not after a failure, or if the URL was another.
func (w *Webhook) succeededBefore(url string, at time.Time, status int) bool {
	if w.URL != url || w.Step > 0 || !at.After(w.LastSuccessAt) || !at.After(w.LastFailureAt) {
		return false
	}
	w.LastSuccessAt, w.LastStatus, w.LastError = at, status, ""
	return true
}
