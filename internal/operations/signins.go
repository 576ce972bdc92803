package operations

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

// SignIns records wrong keys and bad tokens of users in the audit trail. Each minute it writes one
// entry, with a count, for each pair of a kind of key and an address. A flood of attempts cannot
// fill the trail: each minute has at most maxSignInAddresses entries about wrong keys and at most
// maxTokenAddresses entries about bad tokens. All further addresses share one entry per kind.
// SignIns is safe for concurrent use.
type SignIns struct {
	db  Execer
	log *slog.Logger

	mu     sync.Mutex
	failed map[signIn]*failedSignIns
}

// signIn is the key by which attempts are counted: the kind of key, and the address of the client.
type signIn struct {
	kind string
	from string
}

// failedSignIns counts the failed attempts of one signIn since its last entry in the audit trail.
// The next entry stores the failedSignIns as its arguments.
type failedSignIns struct {
	KeyOf string    `json:"key_of"`
	Times int64     `json:"times"`
	Since time.Time `json:"since"`
}

const (
	signInInterval     = time.Minute
	maxSignInAddresses = 20
	maxTokenAddresses  = 5
	// otherAddresses is the address of the entry that counts the addresses beyond the limit.
	otherAddresses = "other addresses"
)

// NewSignIns returns a SignIns without counts, which writes to db.
func NewSignIns(db Execer, log *slog.Logger) *SignIns {
	return &SignIns{db: db, log: log, failed: map[signIn]*failedSignIns{}}
}

// userTokens is the kind of access tokens of users.
const userTokens = "user"

// BadToken counts an invalid or revoked token of a user from an address. It does not block.
func (s *SignIns) BadToken(from netip.Prefix) { s.Failed(userTokens, from) }

// Failed counts a wrong key of a kind, such as admin, from an address. It does not
// block.
func (s *SignIns) Failed(kind string, from netip.Prefix) {
	address := "unknown address"
	if from.IsValid() {
		address = from.String()
	}
	s.add(signIn{kind, address}, 1, time.Now())
}

func (s *SignIns) add(key signIn, times int64, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.failed[key]
	if !ok && s.isFull(key.kind) {
		key.from = otherAddresses
		f, ok = s.failed[key]
	}
	if !ok {
		f = &failedSignIns{KeyOf: key.kind, Since: since.UTC().Truncate(time.Second)}
		s.failed[key] = f
	}
	f.Times += times
}

// isFull reports whether the entries of a kind have reached their limit: attempts from an address
// without an entry are then counted in the entry otherAddresses. Bad tokens have a separate, lower
// limit: anyone can send bad tokens, and they must not displace the entries of wrong keys. The
// caller has locked the mutex.
func (s *SignIns) isFull(kind string) bool {
	users := 0
	for key := range s.failed {
		if key.kind == userTokens {
			users++
		}
	}
	if kind == userTokens {
		return users >= maxTokenAddresses
	}
	return len(s.failed)-users >= maxSignInAddresses
}

// Run writes entries every minute until ctx is done, and then one last time.
func (s *SignIns) Run(ctx context.Context) error {
	defer s.record(context.WithoutCancel(ctx))
	return wait.Every(ctx, signInInterval, s.record)
}

// record writes the counts. If the database does not store them, they are added to the next
// entries.
func (s *SignIns) record(ctx context.Context) {
	s.mu.Lock()
	counted := s.failed
	s.failed = map[signIn]*failedSignIns{}
	s.mu.Unlock()
	if len(counted) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	if err := s.write(ctx, counted); err != nil {
		s.log.WarnContext(ctx, "cannot record failed sign-ins in the audit trail, will try again", "error", err)
		for key, f := range counted {
			s.add(key, f.Times, f.Since)
		}
	}
}

func (s *SignIns) write(ctx context.Context, counted map[signIn]*failedSignIns) error {
	var addresses, arguments []string
	for _, key := range slices.SortedFunc(maps.Keys(counted), func(a, b signIn) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.from, b.from))
	}) {
		encoded, err := storedJSON(counted[key])
		if err != nil {
			return fmt.Errorf("encode failed sign-ins: %w", err)
		}
		addresses, arguments = append(addresses, key.from), append(arguments, encoded)
	}
	if _, err := s.db.Exec(ctx, statements.Get("record failed sign-ins"), addresses, arguments); err != nil {
		return fmt.Errorf("record failed sign-ins in the audit trail: %w", err)
	}
	return nil
}
