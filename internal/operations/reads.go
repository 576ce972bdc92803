package operations

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/user/erasure"
)

// The names of the reads by operators that are recorded in the audit trail, since these reads show
// what users did or wrote.
const (
	ReadExplanation = "user.explain"
	ReadDeadLetters = "deadletters.read"
	ReadExport      = "user.export"
	ReadUser        = "user.show"
	ReadLog         = "log.read"
)

const (
	// readInterval is the time for which an identical read is not recorded again: pages of the
	// admin UI repeat their reads.
	readInterval = 10 * time.Minute
	// maxReads is the maximum number of reads in the memory of a process.
	maxReads = 1 << 12
)

// reads stores which reads of operators this process has recorded recently. The zero value is
// empty. It is safe for concurrent use.
type reads struct {
	mu       sync.Mutex
	recorded map[string]time.Time
}

// isNew reports whether this process has not recorded the read within readInterval.
func (r *reads) isNew(read string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.recorded[read]
	return !ok || now.Sub(at) >= readInterval
}

func (r *reads) add(read string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorded == nil || len(r.recorded) >= maxReads {
		r.recorded = map[string]time.Time{}
	}
	r.recorded[read] = now
}

// Read records a read of an operator in the audit trail, unless this process has recorded the
// same read within ten minutes. If Read fails, the caller must refuse the operator's read.
func (o *Operations) Read(ctx context.Context, operator Operator, action string, arguments any) error {
	databases, err := o.cfg.Cluster.Available()
	if err != nil {
		return err
	}
	encoded, err := storedJSON(arguments)
	if err != nil {
		return fmt.Errorf("encode the arguments of %s: %w", action, err)
	}
	read, now := string(operator.Via)+" "+operator.Name+" "+action+" "+encoded, time.Now()
	if !o.reads.isNew(read, now) {
		return nil
	}
	if err := record(ctx, databases[0].Pool, operator, action, arguments, nothingShown); err != nil {
		return err
	}
	o.reads.add(read, now)
	return nil
}

// nothingShown is what the error says about a read that could not be recorded.
const nothingShown = "nothing was shown"

// record adds an action to the audit trail. One statement inserts the records of its start and its
// end. Its error contains notDone, which says what was not done because the action is not recorded.
func record(ctx context.Context, db DB, operator Operator, action string, arguments any, notDone string) error {
	encoded, err := storedJSON(arguments)
	if err != nil {
		return fmt.Errorf("encode the arguments of %s: %w", action, err)
	}
	if _, err := db.Exec(ctx, statements.Get("record a read"), storedText(operator.Name), operator.Via, action, encoded); err != nil {
		return fmt.Errorf("record %s in the audit trail; %s: %w", action, notDone, err)
	}
	return nil
}

// RecordRead records a read by a command of the command line. It returns false and no error if
// the role may not write or the server is a standby. The caller may then read nevertheless,
// since such a role could also read the tables without badged.
func RecordRead(ctx context.Context, db DB, action string, arguments any) (recorded bool, err error) {
	err = record(ctx, db, OSUser(), action, arguments, nothingShown)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok &&
		(refused.Code == "42501" || refused.Code == "25006") {
		return false, nil
	}
	return err == nil, err
}

// NoUser has the arguments that the trail records for a user without data. It does not contain the
// id of the user, which may have been erased: the trail must not store it again.
type NoUser struct{}

// AuditedExport runs an export of a user, the function do, and records it in the audit trail. The
// function do must call `found` before it writes the first data of the user. If do calls `found`,
// the trail records `arguments`, otherwise [NoUser].
func AuditedExport(ctx context.Context, db DB, operator Operator, userID string, arguments any, do func(ctx context.Context, found func(context.Context) error) (result any, err error)) error {
	var end func(ctx context.Context, result any, failure error) error
	result, did := do(ctx, func(ctx context.Context) (err error) {
		end, err = begin(ctx, db, operator, ReadExport, arguments)
		return err
	})
	failure := did
	if end == nil {
		var err error
		if end, err = begin(context.WithoutCancel(ctx), db, operator, ReadExport, NoUser{}); err != nil {
			return errors.Join(did, err)
		}
		if did != nil {
			failure = errors.New(erasure.TextWithout(did.Error(), userID))
		}
	}
	return errors.Join(did, end(ctx, result, failure))
}

// ActDisconnect is the name, in the audit trail, of a request with an API key that closes the
// connections of a user. The request may also revoke the user's tokens.
const ActDisconnect = "user.disconnect"

// disconnection has the arguments of ActDisconnect.
type disconnection struct {
	User         string     `json:"user"`
	RevokeBefore *time.Time `json:"revoke_before,omitempty"`
}

// RecordDisconnect records a request to close the connections of a user. If revokeBefore is not
// zero, the request also revokes the tokens that were issued before revokeBefore. If the record
// cannot be written, the caller must not carry out the request.
func RecordDisconnect(ctx context.Context, db DB, operator Operator, userID string, revokeBefore time.Time) error {
	d := disconnection{User: userID}
	if !revokeBefore.IsZero() {
		at := revokeBefore.UTC()
		d.RevokeBefore = &at
	}
	return record(ctx, db, operator, ActDisconnect, d, "no connection was ended")
}
