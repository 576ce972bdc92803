package auth

import (
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
)

// KeySetConfig says where a JSON Web Key Set is, and how often to ask for it.
// URL is required.
type KeySetConfig struct {
	URL string
	// RefreshInterval is how often the set is fetched. Default 5m, jittered.
	RefreshInterval time.Duration
	// AskInterval is how long after one fetch a token with an unknown kid may
	// cause the next. Default 10s.
	AskInterval time.Duration
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer is told the metrics, unless nil.
	Registerer prometheus.Registerer
}

// KeySet holds the keys that a URL had when it was last fetched. While it
// cannot be fetched, these stay. Safe for concurrent use.
type KeySet struct {
	cfg     KeySetConfig
	client  *http.Client
	fetches *prometheus.CounterVec
	count   prometheus.Gauge
	success prometheus.Gauge
	// ask wakes Run.
	ask chan struct{}

	mu   sync.Mutex
	keys map[string]tokenKey
	// startedAt is when the last fetch began, and fetchedAt when it last came
	// to something.
	startedAt, fetchedAt time.Time
	// err is what the last fetch failed with; nil if it did not.
	err error
	// coming is set while a fetch is under way or asked for, and done is closed
	// at its end.
	coming bool
	done   chan struct{}
}

const (
	fetchTimeout   = 5 * time.Second
	maxKeySetBytes = 1 << 20
	firstRetry     = time.Second
	lastRetry      = time.Minute
)

// ErrKeysAway is returned for a token whose key is not known while the key set
// cannot say whether it is one of its keys: the token may be good.
var ErrKeysAway = errors.New("the key of the token cannot be looked up right now")

// NewKeySet returns a set that has no keys before Run.
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
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &KeySet{
		cfg: cfg,
		// Connections would be idle for minutes.
		client: &http.Client{Timeout: fetchTimeout, CheckRedirect: checkRedirect, Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		}},
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "badged", Subsystem: "jwks", Name: "fetches_total", Help: "Fetches of the key set, by result.",
		}, []string{"result"}),
		count: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "jwks", Name: "keys", Help: "Usable keys of the key set.",
		}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "badged", Subsystem: "jwks", Name: "last_success_timestamp_seconds", Help: "When the key set was last fetched, in seconds since 1970; 0 for never.",
		}),
		ask: make(chan struct{}, 1),
		// Run begins with a fetch.
		coming: true, done: make(chan struct{}),
	}
	for _, result := range []string{"ok", "error"} {
		s.fetches.WithLabelValues(result)
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(s.fetches, s.count, s.success)
	}
	return s, nil
}

// maxRedirects is how many redirects are followed.
const maxRedirects = 3

var (
	errInsecureRedirect = errors.New("redirects from https to http, which is not followed: anybody in between could choose the keys")
	errManyRedirects    = fmt.Errorf("redirects more than %d times", maxRedirects)
)

// checkRedirect refuses a redirect that leaves https: the keys decide whose
// every token is. Another host may answer, since the first one named it.
func checkRedirect(r *http.Request, via []*http.Request) error {
	if via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return errInsecureRedirect
	}
	if len(via) > maxRedirects {
		return errManyRedirects
	}
	return nil
}

// Run keeps the set up to date until ctx is done. It must be called once.
func (s *KeySet) Run(ctx context.Context) error {
	retry := firstRetry
	for {
		pause := s.cfg.RefreshInterval
		if err := s.refresh(ctx); err == nil {
			retry = firstRetry
		} else if ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "cannot fetch the key set; the keys that are there stay", "error", err)
			pause = min(retry, pause)
			retry = min(2*retry, lastRetry)
		}
		wait := time.NewTimer(pause - pause/10 + rand.N(pause/5+1)) //nolint:gosec // spreads load, guards nothing
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-s.ask:
			wait.Stop()
		case <-wait.C:
		}
	}
}

// refresh fetches the set, and tells those who wait for it.
func (s *KeySet) refresh(ctx context.Context) error {
	s.mu.Lock()
	s.startedAt = time.Now()
	s.coming = true
	select {
	case <-s.ask: // whoever asked gets this one
	default:
	}
	s.mu.Unlock()

	keys, err := s.fetch(ctx)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil {
		s.keys, s.fetchedAt = keys, time.Now()
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

// fetch returns what the URL has. Its errors are safe to show.
func (s *KeySet) fetch(ctx context.Context) (map[string]tokenKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for the key set: %w", err)
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := s.client.Do(r)
	if err != nil {
		var asked *url.Error
		if errors.As(err, &asked) && asked.Timeout() {
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

// all returns the keys by kid. They must not be changed.
func (s *KeySet) all() map[string]tokenKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

// renew returns once the set was fetched for somebody who misses a key, or with
// ErrKeysAway where it was not.
func (s *KeySet) renew(ctx context.Context) error {
	s.mu.Lock()
	if !s.coming {
		if time.Since(s.startedAt) < s.cfg.AskInterval {
			// Tokens that somebody makes up must not have it fetched again and
			// again; and yet the key may be one that is new since.
			s.mu.Unlock()
			return ErrKeysAway
		}
		s.coming = true
		s.ask <- struct{}{} // has room, since nobody else asks meanwhile
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

// Check returns nil where the set is up to date, and else what is wrong. Its
// error is safe to show.
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
	return fmt.Errorf("%w; the keys of %s stay in use", s.err, s.fetchedAt.UTC().Format(time.RFC3339))
}

// find returns the key of a kid among some; "" is the only one there is.
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
