package webhook

import (
	"math/rand/v2"
	"time"

	"github.com/badged/badged/internal/notify/outbound"
)

// ladder has the wait after the first, second, … consecutive failure.
var ladder = [...]time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// longestWait is longer than every wait that waitAfter returns: these waits differ from the values
// in `ladder` by up to a tenth.
const longestWait = 27 * time.Hour

// maxRetryAfter limits the wait that an endpoint can ask for.
const maxRetryAfter = 24 * time.Hour

// waitAfter returns the wait after a number of consecutive failures, which is at least 1. If
// there are more failures than waits in ladder, the wait is the last one and more is false. The
// wait varies randomly by a tenth, so that webhooks that failed together are not retried
// together.
func waitAfter(failures int) (wait time.Duration, more bool) {
	more = failures <= len(ladder)
	wait = ladder[min(failures, len(ladder))-1]
	return shortestWait(failures) + rand.N(wait/5+1), more //nolint:gosec // spreads load, guards nothing
}

// shortestWait returns the shortest wait that waitAfter can return.
func shortestWait(failures int) time.Duration {
	wait := ladder[min(failures, len(ladder))-1]
	return wait - wait/10
}

// waitUntil returns the time until due, before which a webhook must not be called. If due is more
// than longestWait ahead, it was stored while a clock was wrong; waitUntil then returns 0.
func waitUntil(due, now time.Time) time.Duration {
	if wait := due.Sub(now); wait <= longestWait {
		return max(wait, 0)
	}
	return 0
}

// succeededBefore records the success of a call that was made with earlier settings of the webhook.
// url, began and status are the URL, the time and the HTTP status of this call. It reports whether
// it has changed the Ladder. It ignores the call if the URL has changed, if the step of the webhook
// is above 0, or if a later call has succeeded or failed.
func succeededBefore(w *outbound.Webhook, url string, began time.Time, status int) bool {
	if w.URL != url || w.Step > 0 || !began.After(w.LastSuccessAt) || !began.After(w.LastFailureAt) {
		return false
	}
	w.LastSuccessAt, w.LastStatus, w.LastError = began, status, ""
	return true
}
