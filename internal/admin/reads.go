package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/projector/erasure"
)

// The reads of operators that are recorded: they show what users did or wrote.
const (
	ReadExplanation = "user.explain"
	ReadDeadLetters = "deadletters.read"
	ReadExport      = "user.export"
	ReadUser        = "user.show"
	ReadLog         = "log.read"
)

const (
	// readInterval is how long the same read is not recorded again: pages poll.
	readInterval = 10 * time.Minute
	// maxReads bounds the reads that are remembered.
	maxReads = 1 << 12
)

// Reads records reads of operators in audit trails, and remembers which it has recorded a
// moment ago. The zero value is ready. It is safe for concurrent use.
type Reads struct {
	mu       sync.Mutex
	recorded map[string]time.Time
}

// isNew reports whether a read was not recorded within readInterval.
func (r *Reads) isNew(read string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.recorded[read]
	return !ok || now.Sub(at) >= readInterval
}

func (r *Reads) add(read string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorded == nil || len(r.recorded) >= maxReads {
		r.recorded = map[string]time.Time{}
	}
	r.recorded[read] = now
}

// Record records in an audit trail that an operator reads something, unless this
// process recorded the same within ten minutes. If it fails, the read must be
// refused.
func (r *Reads) Record(ctx context.Context, db DB, by Operator, action string, arguments any) error {
	encoded, err := json.Marshal(arguments)
	if err != nil {
		return fmt.Errorf("encode the arguments of %s: %w", action, err)
	}
	read, now := string(by.Via)+" "+by.Name+" "+action+" "+string(encoded), time.Now()
	if !r.isNew(read, now) {
		return nil
	}
	if err := record(ctx, db, by, action, string(encoded)); err != nil {
		return fmt.Errorf("record %s in the audit trail; nothing was shown: %w", action, err)
	}
	r.add(read, now)
	return nil
}

// record records in the audit trail what has no end of its own.
func record(ctx context.Context, db DB, by Operator, action, arguments string) error {
	_, err := db.Exec(ctx, statements.Get("record a read"), by.Name, by.Via, action, arguments)
	return err
}

// RecordRead records that the user of a command line reads something. recorded is
// false if the role of the database or a standby does not allow that: who has only such
// a role may read the tables without badged as well.
func RecordRead(ctx context.Context, db DB, action string, arguments any) (recorded bool, err error) {
	encoded, err := json.Marshal(arguments)
	if err != nil {
		return false, fmt.Errorf("encode the arguments of %s: %w", action, err)
	}
	by := OSUser()
	err = record(ctx, db, by, action, string(encoded))
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok &&
		(refused.Code == "42501" || refused.Code == "25006") {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("record %s in the audit trail; nothing was shown: %w", action, err)
	}
	return true, nil
}

// NoUser is the arguments of a read of a user that badged has no data of. The trail does
// not name that user: the id of an erased one would be stored again.
type NoUser struct{}

// Known reports whether the tables have a user.
func Known(ctx context.Context, pool *pgxpool.Pool, log *events.Log, userID string) (bool, error) {
	all, err := badges.NewReader(pool, log).Badges(ctx, []string{userID})
	if err != nil {
		return false, err
	}
	return all[0].Version > 0, nil
}

// AuditedExport runs an export of a user and records it. do calls found before it writes
// the first thing that badged holds: from then on the trail has the arguments, else
// [NoUser].
func AuditedExport(ctx context.Context, db DB, by Operator, userID string, arguments any, do func(ctx context.Context, found func(context.Context) error) (result any, err error)) error {
	var end func(ctx context.Context, result any, failure error) error
	result, did := do(ctx, func(ctx context.Context) (err error) {
		end, err = begin(ctx, db, by, ReadExport, arguments)
		return err
	})
	failure := did
	if end == nil {
		var err error
		if end, err = begin(context.WithoutCancel(ctx), db, by, ReadExport, NoUser{}); err != nil {
			return errors.Join(did, err)
		}
		if did != nil {
			failure = errors.New(erasure.TextWithout(did.Error(), userID))
		}
	}
	return errors.Join(did, end(ctx, result, failure))
}

// ActDisconnect is that a key ends the connections of a user, and may revoke tokens.
const ActDisconnect = "user.disconnect"

// disconnection is the arguments of ActDisconnect.
type disconnection struct {
	User         string     `json:"user"`
	RevokeBefore *time.Time `json:"revoke_before,omitempty"`
}

// RecordDisconnect records that the connections of a user are to end, and tokens issued
// before a moment are to be refused unless that is zero. If it fails, nothing may happen.
func RecordDisconnect(ctx context.Context, db DB, by Operator, userID string, revokeBefore time.Time) error {
	d := disconnection{User: userID}
	if !revokeBefore.IsZero() {
		at := revokeBefore.UTC()
		d.RevokeBefore = &at
	}
	encoded, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode the arguments of %s: %w", ActDisconnect, err)
	}
	if err := record(ctx, db, by, ActDisconnect, string(encoded)); err != nil {
		return fmt.Errorf("record %s in the audit trail; no connection was ended: %w", ActDisconnect, err)
	}
	return nil
}
