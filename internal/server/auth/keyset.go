package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/base/metric"
	"github.com/badged/badged/internal/base/wait"
)

// KeySetConfig configures a JSON Web Key Set. URL is required.
type KeySetConfig struct {
	URL string
	// RefreshInterval is the time between two fetches; a random jitter of up to 10 % is added
	// or subtracted. After a failed fetch, the time is at most a minute. Default 5m.
	RefreshInterval time.Duration
	// AskInterval is the minimum time from the start of a fetch until a token with an unknown
	// kid may cause another fetch. Default 10s.
	AskInterval time.Duration
	// MaxAge is how long keys are used after the last successful fetch. 0 means no limit.
	MaxAge time.Duration
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Registerer registers the metrics, unless nil.
	Registerer prometheus.Registerer
	// Now is the clock by which keys age; time.Now by default.
	Now func() time.Time
}

// KeySet is a JSON Web Key Set. It has the keys from the last successful fetch of the URL. It
// is safe for concurrent use.
type KeySet struct {
	cfg     KeySetConfig
	client  *http.Client
	fetches *prometheus.CounterVec
	count   prometheus.Gauge
	success prometheus.Gauge
	// ask requests a fetch: it wakes Run.
	ask chan struct{}

	mu   sync.Mutex
	keys map[string]tokenKey
	// startedAt is the start of the last fetch. fetchedAt is the end of the last successful
	// fetch.
	startedAt, fetchedAt time.Time
	// err is the error of the last fetch, or nil.
	err error
	// coming is true while a fetch runs or is requested. done is closed when that fetch ends,
	// and replaced by a new channel.
	coming bool
	done   chan struct{}
}

const (
	fetchTimeout   = 5 * time.Second
	maxKeySetBytes = 1 << 20
	firstRetry     = time.Second
	lastRetry      = time.Minute
)

// ErrKeysAway is returned for a token with an unknown key if the key set cannot be fetched now.
// The token may be valid.
var ErrKeysAway = errors.New("the key of the token cannot be looked up right now")

// NewKeySet returns a set without keys. Run fetches them.
func NewKeySet(cfg KeySetConfig) (*KeySet, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("want a URL such as https://login.example/.well-known/jwks.json")
	}
	if cfg.RefreshInterval <= 0 {
		cfg.RefreshInterval = 5 * time.Minute
	}
	if cfg.AskInterval <= 0 {
		cfg.AskInterval = 10 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &KeySet{
		cfg: cfg,
		// Do not keep the connection open: the next fetch is minutes later.
		client: &http.Client{Timeout: fetchTimeout, CheckRedirect: checkRedirect, Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		}},
		fetches: metric.CounterVec(cfg.Registerer, "badged_jwks_fetches_total", "Fetches of the key set, by result.", "result"),
		count:   metric.Gauge(cfg.Registerer, "badged_jwks_keys", "Keys of the key set that badged can use."),
		success: metric.Gauge(cfg.Registerer, "badged_jwks_last_success_timestamp_seconds", "When the key set was last fetched, in seconds since 1970; 0 if it was never fetched."),
		ask:     make(chan struct{}, 1),
		// Run starts with a fetch.
		coming: true, done: make(chan struct{}),
	}
	for _, result := range []string{"ok", "error"} {
		s.fetches.WithLabelValues(result)
	}
	return s, nil
}

// maxRedirects is how many redirects are followed.
const maxRedirects = 3

var (
	errInsecureRedirect = errors.New("redirects from https to http, which is refused: an attacker on the network could replace the keys")
	errManyRedirects    = fmt.Errorf("redirects more than %d times", maxRedirects)
)

// checkRedirect refuses a redirect from https to http, since an attacker on the network could
// then replace the keys. A redirect to another host is allowed, since the trusted host has
// chosen it.
func checkRedirect(r *http.Request, via []*http.Request) error {
	if via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return errInsecureRedirect
	}
	if len(via) > maxRedirects {
		return errManyRedirects
	}
	return nil
}

// Run fetches the set at intervals, and on request, until ctx is done. Call it once.
func (s *KeySet) Run(ctx context.Context) error {
	retry := wait.Backoff{First: firstRetry, Last: lastRetry}
	for {
		pause := s.cfg.RefreshInterval
		if err := s.refresh(ctx); err == nil {
			retry.Reset()
		} else if ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "cannot fetch the key set; the last fetched keys stay in use until --jwks-max-age", "error", err)
			pause = min(retry.Next(), pause)
		}
		if _, err := wait.Signal(ctx, s.ask, pause-pause/10+rand.N(pause/5+1)); err != nil { //nolint:gosec // spreads load, guards nothing
			return nil
		}
	}
}

// refresh fetches the set, and then wakes the callers of renew.
func (s *KeySet) refresh(ctx context.Context) error {
	s.mu.Lock()
	s.startedAt = time.Now()
	s.coming = true
	select {
	case <-s.ask: // this fetch also answers the request
	default:
	}
	s.mu.Unlock()

	keys, err := s.fetch(ctx)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil {
		s.keys, s.fetchedAt = keys, s.cfg.Now()
		s.count.Set(float64(len(keys)))
		s.success.SetToCurrentTime()
		s.fetches.WithLabelValues("ok").Inc()
	} else {
		s.fetches.WithLabelValues("error").Inc()
	}
	close(s.done)
	s.coming, s.done = false, make(chan struct{})
	return err
}

// fetch fetches the set. Its errors may be shown to clients.
func (s *KeySet) fetch(ctx context.Context) (map[string]tokenKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("request the key set: %w", err)
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := s.client.Do(r)
	if err != nil {
		if asked, ok := errors.AsType[*url.Error](err); ok && asked.Timeout() {
			return nil, errors.New("no answer in time")
		}
		for _, refused := range []error{errInsecureRedirect, errManyRedirects} {
			if errors.Is(err, refused) {
				return nil, refused
			}
		}
		s.cfg.Logger.DebugContext(ctx, "the key set cannot be reached", "error", err)
		return nil, errors.New("cannot be reached")
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered with status %d", res.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxKeySetBytes))
	if err != nil {
		return nil, errors.New("the answer broke off")
	}
	return parseKeySet(b)
}

// all returns a map from kid to key, or nil if the keys are too old. Do not modify the map.
func (s *KeySet) all() map[string]tokenKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tooOld() {
		return nil
	}
	return s.keys
}

// tooOld reports whether the keys are too old to be trusted. The caller holds the mutex.
func (s *KeySet) tooOld() bool {
	return s.cfg.MaxAge > 0 && s.cfg.Now().Sub(s.fetchedAt) > s.cfg.MaxAge
}

// renew waits for the end of a fetch. If no fetch is running or requested, it requests one. It
// fails with ErrKeysAway if the fetch fails or takes too long, or if the last fetch began less
// than AskInterval ago.
func (s *KeySet) renew(ctx context.Context) error {
	s.mu.Lock()
	if !s.coming {
		if time.Since(s.startedAt) < s.cfg.AskInterval {
			// Tokens with invented kids must not cause many fetches. But the kid may belong to
			// a new key, so return ErrKeysAway: the client then tries again.
			s.mu.Unlock()
			return ErrKeysAway
		}
		s.coming = true
		s.ask <- struct{}{} // does not block, since coming allows only one request at a time
	}
	done := s.done
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		return ErrKeysAway
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return ErrKeysAway
	}
	return nil
}

// Check returns nil if the last fetch succeeded, else an error that may be shown to clients.
func (s *KeySet) Check(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err == nil && s.fetchedAt.IsZero():
		return errors.New("not fetched yet")
	case s.err == nil:
		return nil
	case s.fetchedAt.IsZero():
		return fmt.Errorf("never fetched: %w", s.err)
	}
	if s.tooOld() {
		return fmt.Errorf("%w; the keys fetched at %s are too old, and not in use any more", s.err, s.fetchedAt.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("%w; the keys fetched at %s stay in use", s.err, s.fetchedAt.UTC().Format(time.RFC3339))
}

// find returns the key with a kid. If `static` and `fetched` both have such a key, it returns the
// key in `static`. If kid is "" and there is exactly one key, it returns this key.
func find(kid string, static, fetched map[string]tokenKey) (tokenKey, bool) {
	for _, keys := range []map[string]tokenKey{static, fetched} {
		if k, ok := keys[kid]; ok {
			return k, true
		}
	}
	if kid == "" && len(static)+len(fetched) == 1 {
		for _, keys := range []map[string]tokenKey{static, fetched} {
			for k := range maps.Values(keys) {
				return k, true
			}
		}
	}
	return tokenKey{}, false
}
