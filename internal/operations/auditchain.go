package operations

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/pg/pgsession"
)

// AuditHead identifies a record of the audit trail by its number and hash. An operator who
// stores a head outside the database can later verify that the trail up to that record is
// unchanged.
type AuditHead struct {
	// Count is the number of the record, from 1.
	Count int64 `json:"count"`
	// Head is the hash of the record, in hexadecimal.
	Head string `json:"head"`
}

// AuditVerified is the result of a verification of the audit trail.
type AuditVerified struct {
	// AuditHead is the last verified record: the last record of the trail or, if the trail has a
	// fault, the last record before the fault.
	AuditHead
	// Records is the number of verified records. Pruned is the number of earlier records that
	// were pruned.
	Records int64 `json:"records"`
	Pruned  int64 `json:"pruned"`
	// Redactions is the number of redactions. RedactedSince is the number of redactions after
	// the head that the caller gave. NewestRedactions has the last 100 redactions, newest first.
	Redactions       int64            `json:"redactions"`
	RedactedSince    int64            `json:"redactions_since_head"`
	NewestRedactions []AuditRedaction `json:"newest_redactions,omitempty"`
	// Fault is nil if the trail is unchanged.
	Fault *AuditFault `json:"fault,omitempty"`
}

// AuditFault is the first record of the trail that does not agree with the hash chain.
type AuditFault struct {
	// Record is the number of the record.
	Record int64 `json:"record"`
	// Kind is changed, removed or inserted.
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

// Error implements error.
func (f *AuditFault) Error() string {
	return fmt.Sprintf("record %d of the audit trail was %s: %s", f.Record, f.Kind, f.Detail)
}

// The kinds of faults.
const (
	recordChanged  = "changed"
	recordRemoved  = "removed"
	recordInserted = "inserted"
)

// auditRecord is a stored record of the trail. An action has two records: one of its beginning and
// one of its end.
type auditRecord struct {
	number int64
	hash   []byte
	// former is the digest of the content that a redaction replaced; nil if the record was not
	// redacted.
	former []byte
	kind   string // begin or end
	id     int64  // of the action
	at     time.Time

	who, via, action, arguments *string // set in the record of a beginning
	result, failed              *string // set in the record of an end
}

// String names the record in a message.
func (r auditRecord) String() string {
	if r.action == nil {
		return fmt.Sprintf("the end of action %d", r.id)
	}
	return fmt.Sprintf("action %d, %s", r.id, *r.action)
}

// link computes the hash of the record from the hash of the previous record, as the SQL function
// badged.audit_link does. For a redacted record, link uses the digest of the former content, so
// that a redaction does not change the hash.
func (r auditRecord) link(before []byte) []byte {
	content := r.former
	if content == nil {
		content = r.content()
	}
	number, id, at, of := strconv.FormatInt(r.number, 10), strconv.FormatInt(r.id, 10), strconv.FormatInt(r.at.UnixMicro(), 10), hex.EncodeToString(content)
	fields := []*string{&number, &r.kind, &id, &at, r.who, r.via, r.action, &of}
	if r.kind == "end" {
		fields = []*string{&number, &r.kind, &id, &at, &of}
	}
	hash := sha256.Sum256(append(bytes.Clone(before), auditDigest(fields)...))
	return hash[:]
}

// content returns the digest of the fields that a redaction may change.
func (r auditRecord) content() []byte {
	if r.kind == "end" {
		return auditDigest([]*string{r.result, r.failed})
	}
	return auditDigest([]*string{r.arguments})
}

// auditDigest computes the digest of fields as badged.audit_digest does.
func auditDigest(fields []*string) []byte {
	var text strings.Builder
	for _, f := range fields {
		if f == nil {
			text.WriteByte('-')
			continue
		}
		fmt.Fprintf(&text, "%d:%s", len(*f), *f)
	}
	digest := sha256.Sum256([]byte(text.String()))
	return digest[:]
}

// auditWalk is the state of a verification, which reads the records in order and compares them with
// the hash chain.
type auditWalk struct {
	// records is the number of records that the trail should have. head is the hash that the last
	// of these records should have.
	records int64
	head    []byte
	number  int64 // the number of the last record that was compared; hash is the hash of this record
	hash    []byte
	kept    AuditHead
	// start is the last record that was pruned. prunings has the ids of the actions in the trail
	// that pruned records. announced is true after the walk has found, among these actions, the
	// action whose recorded result is start.
	start     AuditHead
	prunings  map[int64]bool
	announced bool
	// redacted has the digest of the current content of each redacted record, by number.
	redacted map[int64]string
}

// add verifies the next record.
func (w *auditWalk) add(r auditRecord) *AuditFault {
	switch {
	case r.number > w.records:
		return &AuditFault{r.number, recordInserted, fmt.Sprintf("%s has a number above %d, the number of records that were written", r, w.records)}
	case r.number <= w.number:
		return &AuditFault{r.number, recordInserted, fmt.Sprintf("%s has a number that is not above the number of the record before it", r)}
	case r.number > w.number+1:
		return missing(w.number+1, r.number-1, fmt.Sprintf("%s follows", r))
	case !bytes.Equal(r.hash, r.link(w.hash)):
		return &AuditFault{r.number, recordChanged, fmt.Sprintf("%s does not match its hash. If its hash was changed too, so may have been the record before it", r)}
	case r.former != nil && hex.EncodeToString(r.content()) != w.redacted[r.number]:
		return &AuditFault{r.number, recordChanged, fmt.Sprintf("%s has neither its original content nor the content that its redaction left", r)}
	case r.number == w.kept.Count && hex.EncodeToString(r.hash) != w.kept.Head:
		return &AuditFault{r.number, recordChanged, fmt.Sprintf("%s does not match the given head: this record or one before it was changed, and the hashes were computed again", r)}
	}
	w.number, w.hash = r.number, r.hash
	w.observe(r)
	return nil
}

// observe sets announced if r is the record of a pruning that deleted the records up to start.
func (w *auditWalk) observe(r auditRecord) {
	if r.action != nil && *r.action == auditPruneAction {
		w.prunings[r.id] = true
	}
	if !w.prunings[r.id] || r.result == nil {
		return
	}
	var said AuditHead
	if json.Unmarshal([]byte(*r.result), &said) == nil && said == w.start {
		w.announced = true
	}
}

// end makes the checks that need all records. It compares the last record with the head of the
// chain. It requires that the trail records the pruning up to w.start. It compares the trail with
// w.kept, the head that an operator has stored outside the database.
func (w *auditWalk) end() *AuditFault {
	switch {
	case w.number < w.records:
		return missing(w.number+1, w.records, fmt.Sprintf("%d records were written", w.records))
	case w.records > 0 && !bytes.Equal(w.hash, w.head):
		return &AuditFault{w.number, recordChanged, "it is not the record that was written last"}
	case w.start.Count > 0 && !w.announced:
		return missing(1, w.start.Count, "no record says that they were pruned")
	case w.kept.Count > w.number:
		return missing(w.number+1, w.kept.Count, fmt.Sprintf("the given head has %d records", w.kept.Count))
	case w.kept.Count == w.start.Count && w.kept != w.start && w.kept.Count > 0:
		return &AuditFault{w.kept.Count, recordChanged, "it was pruned, and did not match the given head: before the pruning, this record or one before it was changed"}
	}
	return nil
}

func missing(first, last int64, reason string) *AuditFault {
	if first < last {
		reason = fmt.Sprintf("records %d to %d are missing; %s", first, last, reason)
	} else {
		reason = "it is missing; " + reason
	}
	return &AuditFault{first, recordRemoved, reason}
}

// errFaultFound stops the query when a record has a fault.
var errFaultFound = errors.New("the trail has a fault")

// VerifyAudit verifies every record of the audit trail against the hash chain. kept is the head
// that an earlier verification returned; if its Count is 0, no head is given. db must be a
// repeatable read transaction, so that all statements see one snapshot.
//
// Two kinds of changes are detected only if kept is given: someone removed the last records and
// changed the head of the chain, or computed the hashes of a record and of all later records again.
// If the trail has a fault, the result contains it and the error is nil. VerifyAudit returns an
// error only if it could not verify the trail.
func VerifyAudit(ctx context.Context, db DB, kept AuditHead) (AuditVerified, error) {
	var (
		records, pruned  int64
		head, prunedHead []byte
	)
	err := db.QueryRow(ctx, statements.Get("read the head of the audit trail")).Scan(&records, &head, &pruned, &prunedHead)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return AuditVerified{}, fmt.Errorf("read the head of the audit trail: %w", err)
	}
	if 0 < kept.Count && kept.Count < pruned {
		return AuditVerified{}, fmt.Errorf("the given head is record %d, and the records up to %d were pruned since: keep a newer one", kept.Count, pruned)
	}
	w := &auditWalk{
		records: records, head: head, number: pruned, hash: make([]byte, sha256.Size), kept: kept,
		start: AuditHead{pruned, hex.EncodeToString(prunedHead)}, prunings: map[int64]bool{},
	}
	if pruned > 0 {
		w.hash = prunedHead
	}
	v := AuditVerified{Pruned: pruned}
	if w.redacted, err = v.readRedactions(ctx, db, kept); err != nil {
		return AuditVerified{}, err
	}
	var fault *AuditFault
	var r auditRecord
	rows, _ := db.Query(ctx, statements.Get("walk the audit trail"))
	_, err = pgx.ForEachRow(rows, []any{&r.number, &r.hash, &r.former, &r.kind, &r.id, &r.at, &r.who, &r.via, &r.action, &r.arguments, &r.result, &r.failed}, func() error {
		if fault = w.add(r); fault != nil {
			return errFaultFound
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFaultFound) {
		return AuditVerified{}, fmt.Errorf("read the audit trail: %w", err)
	}
	if fault == nil {
		fault = w.end()
	}
	v.AuditHead, v.Records, v.Fault = AuditHead{w.number, hex.EncodeToString(w.hash)}, w.number-pruned, fault
	return v, nil
}

// auditPruneAction is the name of the action with which the trail records [PruneAudit].
const auditPruneAction = "audit.prune"

// pruneArguments are the arguments that the trail records for [PruneAudit].
type pruneArguments struct {
	Before time.Time `json:"before"`
}

// pruneAge is the minimum age of pruned records. The action of a younger record may still run, and
// the record of the action's end needs the record of its beginning.
const pruneAge = 24 * time.Hour

// ErrYoung is returned if the pruning would include records of the last day.
var ErrYoung = errors.New("records of the last day, by the clock of the database, are not pruned: an action may be under way")

// ErrNothingToPrune is returned if no record is old enough.
var ErrNothingToPrune = errors.New("no record at the start of the audit trail is that old")

// PruneAudit deletes the records at the start of the trail that are older than the time `before`.
// It returns the last deleted record, or [ErrNothingToPrune]. It fails with [ErrYoung] if `before`
// is less than a day ago, and with a [*dbclock.DifferError] if the clocks of this process and the
// database differ by more than a minute. It never deletes only one of the two records of an action.
// The pruning is recorded in the same transaction, with the hash of the last deleted record, from
// which the remaining chain continues.
//
// If the trail has a fault, PruneAudit fails with the [*AuditFault] and deletes nothing, since
// the records may be evidence.
func PruneAudit(ctx context.Context, pool *pgxpool.Pool, operator Operator, before time.Time) (start AuditHead, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := pgsession.CheckOwner(ctx, tx, "prune the audit trail"); err != nil {
			return err
		}
		return Audited(ctx, tx, operator, auditPruneAction, pruneArguments{before.UTC()}, func(ctx context.Context) (any, error) {
			start, err = pruneAudit(ctx, tx, before)
			return start, err
		})
	})
	return start, err
}

func pruneAudit(ctx context.Context, tx pgx.Tx, before time.Time) (AuditHead, error) {
	switch now, err := pgsession.AgreedNow(ctx, tx); {
	case err != nil:
		return AuditHead{}, err
	case now.Sub(before) < pruneAge:
		return AuditHead{}, ErrYoung
	}
	var records, pruned, last int64
	if err := tx.QueryRow(ctx, statements.Get("lock the audit trail")).Scan(&records, &pruned); err != nil {
		return AuditHead{}, fmt.Errorf("lock the audit trail: %w", err)
	}
	switch v, err := VerifyAudit(ctx, tx, AuditHead{}); {
	case err != nil:
		return AuditHead{}, err
	case v.Fault != nil:
		return AuditHead{}, v.Fault
	}
	if err := tx.QueryRow(ctx, statements.Get("find the records to prune"), before, records).Scan(&last); err != nil {
		return AuditHead{}, fmt.Errorf("find the records to prune: %w", err)
	}
	for lower := last; lower >= 0; {
		last = lower
		if err := tx.QueryRow(ctx, statements.Get("find an action that is pruned in part"), last).Scan(&lower); err != nil {
			return AuditHead{}, fmt.Errorf("find the records to prune: %w", err)
		}
	}
	if last <= pruned {
		return AuditHead{}, ErrNothingToPrune
	}
	var head []byte
	if err := tx.QueryRow(ctx, statements.Get("move the start of the audit trail"), last).Scan(&head); err != nil {
		return AuditHead{}, fmt.Errorf("move the start of the audit trail: %w", err)
	}
	if _, err := tx.Exec(ctx, statements.Get("prune the audit trail"), last); err != nil {
		return AuditHead{}, fmt.Errorf("prune the audit trail: %w", err)
	}
	return AuditHead{last, hex.EncodeToString(head)}, nil
}
