package revocation

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// parts is the number of maps of a table. When old entries are removed, only one map at a time
// is locked. So even if the table has millions of users, the removal delays the check of a
// token by at most a few milliseconds.
const parts = 64

// table maps each user to a time: the user's tokens that were issued before this time are
// revoked. An entry has 16 bytes, but uses about 26 bytes of memory, since maps have empty
// slots. table is safe for concurrent use.
type table struct {
	secret []byte
	parts  [parts]part
	users  atomic.Int64
}

type part struct {
	mu sync.RWMutex
	// before maps the key of a user to microseconds since 1970.
	before map[uint64]int64
}

func newTable(secret []byte) *table {
	t := &table{secret: secret}
	for i := range t.parts {
		t.parts[i].before = map[uint64]int64{}
	}
	return t
}

// digestOf returns the digest of a user's id. For an erased user, the database stores this
// digest in place of the id.
func digestOf(secret []byte, userID string) [sha256.Size]byte {
	return sha256.Sum256(slices.Concat(secret, []byte(userID)))
}

// keyOf returns the key of a user in a table, from the digest of the user's id. erasedKeyOf
// returns the key of an erased user. If two users have the same key, a revocation for one user
// also revokes older tokens of the other user. If ten million users have revoked tokens, the
// probability that a given other user has the key of one of them is 10⁻¹².
func keyOf(digest [sha256.Size]byte) uint64       { return binary.BigEndian.Uint64(digest[:8]) }
func erasedKeyOf(digest [sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(digest[8:16]) }

func (t *table) part(key uint64) *part { return &t.parts[key%parts] }

// never is the result of get for users without a revocation.
const never = math.MinInt64

// get returns the time before which a user's tokens are revoked, or never.
func (t *table) get(key uint64) int64 {
	p := t.part(key)
	p.mu.RLock()
	defer p.mu.RUnlock()
	if before, ok := p.before[key]; ok {
		return before
	}
	return never
}

// set sets the time before which a user's tokens are revoked.
func (t *table) set(key uint64, before int64) {
	p := t.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.before[key]; !ok {
		t.users.Add(1)
	}
	p.before[key] = before
}

// revoked reports whether tokens of a user that were issued at issuedAt are revoked.
func (t *table) revoked(userID string, issuedAt time.Time) bool {
	if t.users.Load() == 0 { // the usual case
		return false
	}
	digest := digestOf(t.secret, userID)
	before := max(t.get(keyOf(digest)), t.get(erasedKeyOf(digest)))
	return before != never && issuedAt.Before(time.UnixMicro(before))
}

// forget removes entries whose time is before moment. It builds new maps, since Go maps do not
// shrink.
func (t *table) forget(moment time.Time) {
	oldest := moment.UnixMicro()
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		left := 0
		for _, before := range p.before {
			if before >= oldest {
				left++
			}
		}
		if gone := len(p.before) - left; gone > 0 {
			kept := make(map[uint64]int64, left)
			for key, before := range p.before {
				if before >= oldest {
					kept[key] = before
				}
			}
			p.before = kept
			t.users.Add(int64(-gone))
		}
		p.mu.Unlock()
	}
}
