package keyring

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/internal/wait"
)

// Config configures which keys there are.
type Config struct {
	// Publishers and Admins have the form NAME=SECRET or NAME=sha256:HEX. These
	// keys may do everything that their kind may.
	Publishers, Admins []string
	// File has further keys; "" is none.
	File string
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Registerer registers the metrics, unless nil.
	Registerer prometheus.Registerer
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Ring holds the keys. It is safe for concurrent use. A nil Ring has none.
type Ring struct {
	cfg     Config
	metrics *metrics
	// flags are the keys of flags.
	flags []*Key
	// current has all keys by the digest of their secrets. Looking a digest up takes
	// a time that tells something about the digest, and so nothing about the secret.
	current atomic.Pointer[map[[sha256.Size]byte]*Key]

	// mu serializes loads and guards what follows.
	mu     sync.Mutex
	loaded []*Key
	follow func(Load)
	usages map[usageKey]*usage
	// quotas shares quotas with other processes; nil if nothing does.
	quotas Quotas
	// seen is the file as it was last loaded, or tried to; pending is how the last
	// look found it.
	seen, pending look
	// lookedAt is when that was, and changing is set while the two differ.
	lookedAt atomic.Pointer[time.Time]
	changing atomic.Bool
}

type usageKey struct {
	kind Kind
	name string
}

// look is how the file was found: its content, or why it cannot be read.
type look struct {
	content []byte
	err     string
}

func (l look) is(other look) bool { return l.err == other.err && bytes.Equal(l.content, other.content) }

// New returns the keys of flags and of the file. Its errors name the flag, or the
// line of the file, and the key, but never a secret.
func New(cfg Config) (*Ring, []error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Ring{cfg: cfg, metrics: newMetrics(cfg.Registerer), usages: map[usageKey]*usage{}}
	var errs []error
	for _, given := range []struct {
		flag  string
		kind  Kind
		specs []string
	}{{"--publisher-keys", Publisher, cfg.Publishers}, {"--admin-keys", Admin, cfg.Admins}} {
		keys, err := parseSpecs(given.kind, given.specs)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", given.flag, err))
		}
		r.flags = append(r.flags, keys...)
	}
	var fromFile []*Key
	if cfg.File != "" {
		now, err := lookAt(cfg.File)
		r.seen = now
		r.looked(now)
		var mistakes []error
		if err != nil {
			mistakes = []error{err}
		} else {
			fromFile, mistakes = r.parse(now.content)
		}
		for _, m := range mistakes {
			errs = append(errs, fmt.Errorf("--keys-file: %w", m))
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	r.use(fromFile)
	if cfg.File != "" {
		r.metrics.loads.WithLabelValues(loadOK).Inc()
	}
	return r, nil
}

// HasAdmins reports whether there is an admin's key, or may be one after the file
// changes.
func (r *Ring) HasAdmins() bool {
	return r != nil && (r.cfg.File != "" || slices.ContainsFunc(r.flags, func(k *Key) bool { return k.Kind == Admin }))
}

// Find returns the key with a secret, or nil, and counts the request. valid is
// false for a key that has expired.
func (r *Ring) Find(secret string) (k *Key, valid bool) {
	if r == nil {
		return nil, false
	}
	k = (*r.current.Load())[sha256.Sum256([]byte(secret))]
	switch {
	case k == nil:
		return nil, false
	case k.hasExpired():
		k.usage.refuse(Expired)
		return k, false
	}
	k.usage.requests.Inc()
	return k, true
}

// ErrChanging is returned for a key of a file that has changed and is not yet loaded.
var ErrChanging = errors.New("the keys are being loaded")

// Still fails once a key that [Ring.Find] has returned may not do the same any more: with a
// *DeniedError if it was removed or has expired, and with ErrChanging if it is configured
// otherwise by now, or may be. A process that was stopped for a while looks at the file first.
func (r *Ring) Still(k *Key) error {
	if r.cfg.File != "" && time.Since(*r.lookedAt.Load()) > staleLook {
		r.mu.Lock()
		now, _ := lookAt(r.cfg.File) // one that cannot be read differs
		r.looked(now)
		r.mu.Unlock()
	}
	current := (*r.current.Load())[k.digest]
	switch {
	case current == nil:
		return &DeniedError{Removed, fmt.Sprintf("the key %s was removed while the request was under way", k.Name)} // its metrics are gone
	case current.hasExpired():
		return k.deny(Expired, "has expired")
	case r.changing.Load(), current != k && !current.equals(k):
		return ErrChanging
	}
	return nil
}

// looked notes how the file was found. The caller holds the mutex, or is New.
func (r *Ring) looked(now look) {
	at := time.Now() // monotonic
	r.pending = now
	r.lookedAt.Store(&at)
	r.changing.Store(!now.is(r.seen))
}

// lookAt reads the file.
func lookAt(path string) (look, error) {
	content, err := readFile(path)
	if err != nil {
		return look{err: err.Error()}, err
	}
	return look{content: content}, nil
}

// parse parses the content of the file and compares its keys with each other and
// with those of flags.
func (r *Ring) parse(content []byte) ([]*Key, []error) {
	keys, mistakes := parseFile(r.cfg.File, content)
	if len(mistakes) > 0 {
		return nil, mistakes
	}
	names, digests := map[string]bool{}, map[[sha256.Size]byte]string{}
	for _, k := range r.flags {
		names[k.Name], digests[k.digest] = true, k.Name
	}
	for _, k := range keys {
		if names[k.Name] {
			mistakes = append(mistakes, fmt.Errorf("%s: key %s: another key has this name", r.cfg.File, k.Name))
		}
		if other, twice := digests[k.digest]; twice {
			mistakes = append(mistakes, fmt.Errorf("%s: key %s: the key %s has the same secret: which of them counts would be unclear", r.cfg.File, k.Name, other))
		}
		names[k.Name], digests[k.digest] = true, k.Name
	}
	return keys, mistakes
}

// use makes the keys of flags and these the current ones. It returns what was taken of
// quotas that have changed, and not used.
func (r *Ring) use(fromFile []*Key) (left []unused) {
	all := make(map[[sha256.Size]byte]*Key, len(r.flags)+len(fromFile))
	usages := make(map[usageKey]*usage, len(all))
	// Admins come last among those of flags: if a publisher has the same secret, it
	// may do everything.
	for _, k := range slices.Concat(r.flags, fromFile) {
		id := usageKey{k.Kind, k.Name}
		u := r.usages[id]
		if u == nil {
			u = newUsage(k, r.metrics)
		}
		left = append(left, u.limit(k.quota, r.quotas))
		usages[id] = u
		if k.usage == nil { // requests read the keys of flags, which stay
			k.usage, k.now = u, r.cfg.Now
		}
		all[k.digest] = k
		r.metrics.expire(k)
	}
	r.current.Store(&all)
	for id, u := range r.usages {
		if usages[id] == nil {
			r.metrics.remove(u)
		}
	}
	r.loaded, r.usages = fromFile, usages
	return left
}

// watchInterval is how often Run looks at the file. A change counts once two looks
// in a row find it the same, since a file that is being written in place may be
// valid although it lacks keys.
const watchInterval = 400 * time.Millisecond

// staleLook is how old a look at the file may be for [Ring.Still].
const staleLook = 2 * watchInterval

// Run watches the file until ctx is done.
func (r *Ring) Run(ctx context.Context) error {
	if r.cfg.File == "" {
		<-ctx.Done()
		return nil
	}
	defer r.stop(ctx)
	// Reading a small file also works where notifications do not: on network file
	// systems, and for links that Kubernetes exchanges.
	return wait.Every(ctx, watchInterval, r.watch)
}

// watch looks at the file once.
func (r *Ring) watch(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := lookAt(r.cfg.File)
	settled := now.is(r.pending)
	r.looked(now)
	if settled && !now.is(r.seen) {
		r.load(ctx, now, err)
	}
}

// Reload loads the file at once. If the file has mistakes, the keys stay as they
// are.
func (r *Ring) Reload(ctx context.Context) {
	if r.cfg.File == "" {
		r.cfg.Logger.InfoContext(ctx, "asked to load keys again, but this process reads no file of keys: there is no --keys-file, or the process has neither the role api nor --internal-listen")
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := lookAt(r.cfg.File)
	r.load(ctx, now, err)
}

// load uses what was found in the file, or keeps the present keys. The caller holds
// the mutex.
func (r *Ring) load(ctx context.Context, now look, err error) {
	r.seen = now
	r.looked(now)
	var keys []*Key
	mistakes := []error{err}
	if err == nil {
		keys, mistakes = r.parse(now.content)
	}
	if len(mistakes) > 0 {
		r.metrics.loads.WithLabelValues(loadFailed).Inc()
		r.metrics.current.Set(0)
		r.cfg.Logger.ErrorContext(ctx, "the file of keys has mistakes; the keys loaded before stay valid",
			"file", r.cfg.File, "error", errors.Join(mistakes...))
		return
	}
	added, changed, removed := compare(r.loaded, keys)
	r.giveBack(ctx, r.use(keys))
	if r.follow != nil && len(added)+len(changed)+len(removed) > 0 {
		r.follow(Load{Keys: r.names(), Added: added, Changed: changed, Removed: removed})
	}
	r.metrics.loads.WithLabelValues(loadOK).Inc()
	r.metrics.current.Set(1)
	r.cfg.Logger.InfoContext(ctx, "loaded keys", "file", r.cfg.File, "keys", len(keys),
		"added", added, "changed", changed, "removed", removed)
}

// Load is what was loaded: names of keys.
type Load struct {
	// Keys are all, also those of flags, in ascending order.
	Keys []string
	// Added, Changed and Removed are the differences to those before.
	Added, Changed, Removed []string
}

// Follow makes f be called with every change of the keys, and returns the present
// ones. f must not block.
func (r *Ring) Follow(f func(Load)) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.follow = f
	return r.names()
}

func (r *Ring) names() []string {
	var all []string
	for _, k := range slices.Concat(r.flags, r.loaded) {
		all = append(all, k.Name)
	}
	slices.Sort(all)
	return all
}

// compare returns the names of keys that only after has, that differ, and that only
// before has.
func compare(before, after []*Key) (added, changed, removed []string) {
	old := map[string]*Key{}
	for _, k := range before {
		old[k.Name] = k
	}
	for _, k := range after {
		was, ok := old[k.Name]
		delete(old, k.Name)
		switch {
		case !ok:
			added = append(added, k.Name)
		case !k.equals(was):
			changed = append(changed, k.Name)
		}
	}
	for _, k := range before {
		if old[k.Name] != nil {
			removed = append(removed, k.Name)
		}
	}
	return added, changed, removed
}

// equals reports whether two keys are configured the same.
func (k *Key) equals(other *Key) bool {
	return k.Name == other.Name && k.Kind == other.Kind && k.digest == other.digest && k.expires.Equal(other.expires) &&
		slices.Equal(k.sources, other.sources) && slices.Equal(k.types, other.types) && slices.Equal(k.users, other.users) && slices.Equal(k.rooms, other.rooms) &&
		k.reads == other.reads && k.disconnects == other.disconnects && k.rate == other.rate && k.quota == other.quota
}
