package httpapi

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func statusOf(err error) int {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.Status
	}
	return http.StatusOK
}

func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := newWrongKeys(nil)
		a := newAttempts("admin", 1, slog.New(slog.DiscardHandler), counts)
		reported := 0
		a.report = func(kind string, _ netip.Prefix) {
			if kind == "admin" {
				reported++
			}
		}
		one, other := netip.MustParsePrefix("203.0.113.1/32"), netip.MustParsePrefix("203.0.113.2/32")
		try := func(from netip.Prefix, good bool) int {
			return statusOf(a.check(t.Context(), from, func() bool { return good }, "wrong"))
		}
		for i := range triesAtOnce {
			if got := try(one, false); got != http.StatusUnauthorized {
				t.Fatalf("wrong key %d is answered with %d", i, got)
			}
		}
		for range 100 { // refused without a check, so they do not count
			if got := try(one, true); got != http.StatusTooManyRequests {
				t.Fatalf("over the limit, a good key is answered with %d", got)
			}
		}
		if got := try(other, false); got != http.StatusUnauthorized {
			t.Errorf("another address is answered with %d", got)
		}
		time.Sleep(time.Second) // of the bubble
		if got := try(one, false); got != http.StatusUnauthorized {
			t.Errorf("a second later another is answered with %d", got)
		}
		if got := try(one, true); got != http.StatusTooManyRequests {
			t.Errorf("and one more with %d", got)
		}
		time.Sleep(time.Second) // of the bubble
		if got := try(one, true); got != http.StatusOK {
			t.Errorf("a good key is answered with %d", got)
		}
		for range 2 * triesAtOnce { // others may share the address
			if got := try(one, false); got != http.StatusUnauthorized {
				t.Fatalf("after a good key a wrong one is answered with %d", got)
			}
		}
		time.Sleep(goodFor) // of the bubble
		for range triesAtOnce {
			try(one, false)
		}
		if got := try(one, false); got != http.StatusTooManyRequests {
			t.Errorf("long after a good key a wrong one is answered with %d", got)
		}
		if n := testutil.ToFloat64(counts.WithLabelValues("admin")); n != 4*triesAtOnce+100+1+1+1+1 {
			t.Errorf("%v wrong keys are counted", n)
		} else if reported != int(n) {
			t.Errorf("%d of %v wrong keys are reported", reported, n)
		}
	})
}

func TestAttemptsAreBounded(t *testing.T) {
	a := newAttempts("admin", 1, slog.New(slog.DiscardHandler), newWrongKeys(nil))
	address := netip.MustParseAddr("10.0.0.0")
	for range 3 * maxTries {
		_ = a.check(t.Context(), netip.PrefixFrom(address, 32), func() bool { return false }, "wrong")
		address = address.Next()
		if n := len(a.current) + len(a.previous); n > 2*maxTries {
			t.Fatalf("%d addresses are remembered", n)
		}
	}
}
