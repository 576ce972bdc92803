package keyring

import (
	"cmp"
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

	"github.com/badged/badged/internal/base/wait"
)

// Config configures a Ring.
type Config struct {
	// Publishers and Admins are keys in the form NAME=SECRET or NAME=sha256:HEX. They have all
	// rights of their kind.
	Publishers, Admins []string
	// File names a file with more keys; "" for no file.
	File string
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Registerer registers the metrics, unless nil.
	Registerer prometheus.Registerer
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Ring has the keys. It is safe for concurrent use. A nil Ring is empty.
type Ring struct {
	cfg     Config
	metrics *metrics
	// flags are the keys that were given by flags.
	flags []*Key
	// current maps the digest of each secret to its key. The duration of a lookup may reveal
	// parts of a digest, but a digest reveals nothing about its secret.
	current atomic.Pointer[map[[sha256.Size]byte]*Key]
	file    wait.Files

	// mu serializes loads and guards the fields below.
	mu     sync.Mutex
	loaded []*Key
	follow func(Load)
	usages map[usageKey]*usage
	// quotas shares quotas with other processes; nil if they are not shared.
	quotas Quotas
}

type usageKey struct {
	kind Kind
	name string
}

// New returns a Ring with the keys of the flags and of the file. Its errors name the flag or
// the line of the file, and the key, but never contain a secret.
func New(cfg Config) (*Ring, []error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
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
		r.file = wait.Files{Paths: []string{cfg.File}, Interval: watchInterval, Use: r.load}
		var mistakes []error
		fromFile, mistakes = r.parse(r.file.Read())
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

// HasAdmins reports whether there may be admin keys, now or later: a flag gives an admin key, or
// there is a file of keys, to which operators can add admin keys while the process runs.
func (r *Ring) HasAdmins() bool {
	return r != nil && (r.cfg.File != "" || slices.ContainsFunc(r.flags, func(k *Key) bool { return k.Kind == Admin }))
}

// Find returns the key with a secret, or nil if there is none. valid is false if there is no
// such key, or if the key has expired. Find counts the request in the metrics of the key.
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

// ErrChanging is returned for a key whose rights have changed, or while a changed file is not
// loaded yet.
var ErrChanging = errors.New("the keys are being loaded")

// Still checks whether a key that [Ring.Find] returned earlier is still valid. It fails with a
// *DeniedError if the key was removed or has expired in the meantime. It fails with ErrChanging
// if the configuration of the key has changed, or if a changed file is not loaded yet.
func (r *Ring) Still(k *Key) error {
	changing := r.cfg.File != "" && r.file.Changing()
	current := (*r.current.Load())[k.digest]
	switch {
	case current == nil:
		return &DeniedError{Removed, fmt.Sprintf("the key %s was removed while the request was under way", k.Name)} // its metrics were deleted
	case current.hasExpired():
		return k.deny(Expired, "has expired")
	case changing, current != k && !current.equals(k):
		return ErrChanging
	}
	return nil
}

// parse parses the content of the file. It also checks that no two keys of the file and the
// flags have the same name or secret. err is the error of reading the file; if it is not nil,
// parse only returns it.
func (r *Ring) parse(contents [][]byte, err error) ([]*Key, []error) {
	if err != nil {
		return nil, []error{err}
	}
	keys, mistakes := parseFile(r.cfg.File, contents[0])
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

// use makes the keys of the flags and of the file current. For each key whose quota has
// changed, it returns the events of the former quota that this process has reserved and not used.
func (r *Ring) use(fromFile []*Key) (left []unused) {
	all := make(map[[sha256.Size]byte]*Key, len(r.flags)+len(fromFile))
	usages := make(map[usageKey]*usage, len(all))
	// In r.flags, admin keys follow publisher keys. So if a publisher key and an admin key have
	// the same secret, the admin key is used.
	for _, k := range slices.Concat(r.flags, fromFile) {
		id := usageKey{k.Kind, k.Name}
		u := r.usages[id]
		if u == nil {
			u = newUsage(k, r.metrics)
		}
		left = append(left, u.limit(k.quota, r.quotas))
		usages[id] = u
		if k.usage == nil { // do not set usage again: requests concurrently read the keys of the flags
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

// watchInterval is how often Run checks the file for changes.
const watchInterval = 400 * time.Millisecond

// Run watches the file, and loads its changes, until ctx is done.
func (r *Ring) Run(ctx context.Context) error {
	if r.cfg.File == "" {
		<-ctx.Done()
		return nil
	}
	defer r.stop(ctx)
	return r.file.Run(ctx)
}

// Reload loads the file at once. If the file has mistakes, the keys do not change.
func (r *Ring) Reload(ctx context.Context) {
	if r.cfg.File == "" {
		r.cfg.Logger.InfoContext(ctx, "asked to load keys again, but this process reads no file of keys: there is no --keys-file, or the process has neither the role api nor --internal-listen")
		return
	}
	r.file.Reload(ctx)
}

// load makes the content of the file current, or logs its mistakes and changes nothing.
func (r *Ring) load(ctx context.Context, contents [][]byte, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys, mistakes := r.parse(contents, err)
	if len(mistakes) > 0 {
		r.metrics.loads.WithLabelValues(loadFailed).Inc()
		r.metrics.current.Set(0)
		r.cfg.Logger.ErrorContext(ctx, "the file of keys has mistakes; the keys loaded before stay valid",
			"file", r.cfg.File, "error", errors.Join(mistakes...))
		return nil
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
	return nil
}

// Load lists the names of keys after a load.
type Load struct {
	// Keys are the names of all keys from flags and from the file, in ascending order.
	Keys []string
	// Added, Changed and Removed are the names of keys that this load added, changed or removed.
	Added, Changed, Removed []string
}

// Follow registers f, which is called after every change of the keys. It returns the names of
// the current keys. f must not block.
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

// compare returns the names of the keys that are only in `after` (added), the names of the keys
// that differ between the two lists (changed), and the names of the keys that are only in
// `before` (removed).
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

// equals reports whether two keys have the same configuration.
func (k *Key) equals(other *Key) bool {
	return k.Name == other.Name && k.Kind == other.Kind && k.digest == other.digest && k.expires.Equal(other.expires) &&
		slices.Equal(k.sources, other.sources) && slices.Equal(k.types, other.types) && slices.Equal(k.users, other.users) && slices.Equal(k.rooms, other.rooms) &&
		k.reads == other.reads && k.disconnects == other.disconnects && k.rate == other.rate && k.quota == other.quota
}
