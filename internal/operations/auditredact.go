package operations

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/user/erasure"
)

// auditRedactAction is the name of the action with which the trail records [RedactAudit].
const auditRedactAction = "audit.redact"

// redaction is the result that the trail records for [RedactAudit].
type redaction struct {
	Records []redactedRecord `json:"records"`
}

// redactedRecord is a record that was redacted.
type redactedRecord struct {
	Number int64 `json:"number"`
	// Digest is the digest of the record's new content, in hexadecimal.
	Digest string `json:"digest"`
}

// maxRedactions is the maximum number of redactions that a verification lists.
const maxRedactions = 100

// AuditRedaction is a redaction as the trail records it: the record of the redaction itself, and
// the records that it changed.
type AuditRedaction struct {
	Record int64     `json:"record"`
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	Via    Via       `json:"via"`
	// Redacted has the numbers of the redacted records.
	Redacted []int64 `json:"redacted"`
}

// RedactAudit removes the id of a user from arguments, results and errors in the audit trail,
// and returns the number of changed records. It does not change the other fields of an action:
// operator, interface, time and name.
//
// The hash chain stays verifiable: a redacted record stores the digest of its former content,
// from which its hash is computed. The redaction itself is recorded in the same transaction,
// with the digests of the new contents. So a later change of the new contents is detected.
func RedactAudit(ctx context.Context, pool *pgxpool.Pool, operator Operator, userID string) (redacted int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var records, pruned int64
		err := tx.QueryRow(ctx, statements.Get("lock the audit trail")).Scan(&records, &pruned)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock the audit trail: %w", err)
		}
		done, err := redactRecords(ctx, tx, userID)
		if err != nil || len(done) == 0 {
			return err
		}
		redacted = int64(len(done))
		return Audited(ctx, tx, operator, auditRedactAction, struct{}{}, func(context.Context) (any, error) { return redaction{done}, nil })
	})
	if err != nil {
		return 0, fmt.Errorf("redact the audit trail: %w", err)
	}
	return redacted, nil
}

// redactRecords redacts the records that name a user.
func redactRecords(ctx context.Context, tx pgx.Tx, userID string) (done []redactedRecord, err error) {
	var writes pgx.Batch
	var number int64
	var content []byte // arguments or result
	var failed *string
	rows, _ := tx.Query(ctx, statements.Get("find records that may name a user"), userID)
	if _, err := pgx.ForEachRow(rows, []any{&number, &content, &failed}, func() error {
		rest, changed, err := erasure.JSONWithout(content, userID)
		if err != nil {
			return fmt.Errorf("record %d: %w", number, err)
		}
		var text *string
		if failed != nil {
			without := erasure.TextWithout(*failed, userID)
			text, changed = &without, changed || without != *failed
		}
		if !changed {
			return nil
		}
		i := len(done)
		done = append(done, redactedRecord{Number: number})
		keep := func(row pgx.Row) error {
			var digest []byte
			err := row.Scan(&digest)
			if errors.Is(err, pgx.ErrNoRows) { // the number belongs to a record in the other table
				return nil
			}
			done[i].Digest = hex.EncodeToString(digest)
			return err
		}
		writes.Queue(statements.Get("redact a beginning"), number, rest).QueryRow(keep)
		writes.Queue(statements.Get("redact an end"), number, rest, text).QueryRow(keep)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the audit trail: %w", err)
	}
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return done, nil
}

// readRedactions adds the redactions to v. It returns the digest of the content of each redacted
// record, by the number of the record.
func (v *AuditVerified) readRedactions(ctx context.Context, db DB, kept AuditHead) (map[int64]string, error) {
	digests := map[int64]string{}
	var by AuditRedaction
	var result []byte
	rows, _ := db.Query(ctx, statements.Get("read the redactions"))
	if _, err := pgx.ForEachRow(rows, []any{&by.Record, &by.At, &by.Who, &by.Via, &result}, func() error {
		var r redaction
		if err := json.Unmarshal(result, &r); err != nil {
			return nil //nolint:nilerr // the record was changed, which the walk detects
		}
		by.At, by.Redacted = by.At.UTC(), make([]int64, 0, len(r.Records))
		for _, record := range r.Records {
			if record.Number < by.Record {
				digests[record.Number] = record.Digest
			}
			by.Redacted = append(by.Redacted, record.Number)
		}
		v.Redactions++
		if kept.Count > 0 && by.Record > kept.Count {
			v.RedactedSince++
		}
		v.NewestRedactions = append(v.NewestRedactions[max(0, len(v.NewestRedactions)+1-maxRedactions):], by)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the redactions of the audit trail: %w", err)
	}
	slices.Reverse(v.NewestRedactions)
	return digests, nil
}
