package cli

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/progress"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/server/config"
)

type auditCmd struct {
	List   auditListCmd   `cmd:"" help:"Show the newest actions of operators."`
	Verify auditVerifyCmd `cmd:"" help:"Verify that no record of the audit trail was changed, removed or inserted."`
	Prune  auditPruneCmd  `cmd:"" help:"Delete old records of the audit trail, so that the remaining records can still be verified."`
}

type auditListCmd struct {
	config.Database `embed:""`
	Limit           int    `help:"Show at most N actions." default:"50" placeholder:"N" env:"-"`
	Before          *int64 `help:"Show only actions with an id below this one." placeholder:"ID" env:"-"`
	JSON            bool   `name:"json" help:"Print JSON: one line for each action." env:"-"`
}

// Validate implements kong's validation.
func (c *auditListCmd) Validate() error {
	errs := []error{c.Database.Validate()}
	if c.Limit < 1 {
		errs = append(errs, errors.New("--limit must be 1 or more"))
	}
	if c.Before != nil && *c.Before < 1 {
		errs = append(errs, errors.New("--before must be the id of an action"))
	}
	return errors.Join(errs...)
}

// auditPage is the maximum number of actions that are read at once.
const auditPage = 500

// Run prints actions, newest first.
func (c *auditListCmd) Run(ctx context.Context, streams Streams) error {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	lines := json.NewEncoder(streams.Out)
	if !c.JSON {
		fmt.Fprintln(table, connect.Before("SHARD", dbs.Databases()[0].Name)+"ID\tAT\tWHO\tVIA\tACTION\tARGUMENTS\tEND")
	}
	trail, before := operations.New(operations.Config{Cluster: dbs}), int64(0)
	if c.Before != nil {
		before = *c.Before
	}
	for left := c.Limit; left > 0; {
		page, err := trail.Audit(ctx, before, min(left, auditPage))
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			before = e.ID
			if !c.JSON {
				fmt.Fprintf(table, "%s%d\t%s\t%s\t%s\t%s\t%s\t%s\n", connect.Before(e.Shard, e.Shard), e.ID, stamp(e.At), e.Who, e.Via, e.Action, brief(string(e.Arguments)), brief(endOf(e)))
			} else if err := lines.Encode(e); err != nil {
				return err
			}
		}
		left -= len(page)
	}
	_, err = dbs.Present()
	return errors.Join(err, table.Flush())
}

// endOf describes how an action ended.
func endOf(e operations.Entry) string {
	switch {
	case e.EndedAt == nil:
		return "none"
	case e.Error != nil:
		return "failed: " + *e.Error
	case len(e.Result) > 0:
		return "done: " + string(e.Result)
	}
	return "done"
}

// brief returns a text on one line, and shortened, for a cell of a table.
func brief(text string) string {
	const longest = 80
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return string(runes)
}

type auditVerifyCmd struct {
	config.Database `embed:""`
	Count           *int64 `help:"With --head: the number of records that an earlier verification printed." placeholder:"N" env:"-"`
	Head            string `help:"With --count: the head that the same verification printed. The command fails unless the trail still has this record." placeholder:"HASH" env:"-"`
	JSON            bool   `name:"json" help:"Print JSON." env:"-"`
}

// Validate implements kong's validation.
func (c *auditVerifyCmd) Validate() error {
	errs := []error{c.Database.Validate()}
	if (c.Count == nil) != (c.Head == "") {
		errs = append(errs, errors.New("--count and --head belong together"))
	}
	if c.Count != nil && *c.Count < 1 {
		errs = append(errs, errors.New("--count must be 1 or more"))
	}
	if b, err := hex.DecodeString(c.Head); c.Head != "" && (err != nil || len(b) != 32) {
		errs = append(errs, errors.New("--head must be 64 hexadecimal digits"))
	}
	return errors.Join(errs...)
}

// Run verifies the audit trail of each database separately. It fails if any trail has a fault.
func (c *auditVerifyCmd) Run(ctx context.Context, streams Streams) error {
	all, err := c.All()
	if err != nil {
		return err
	}
	if c.Count != nil && len(all) > 1 {
		return errors.New("each shard has an audit trail of its own: with --count and --head, give only the --shard that printed them")
	}
	databases, err := connect.Separate(ctx, c.Database, false)
	if err != nil {
		return err
	}
	defer connect.Close(databases)
	return connect.EachCandidate(databases, func(d cluster.Candidate) error { return c.verify(ctx, streams, d) })
}

func (c *auditVerifyCmd) verify(ctx context.Context, streams Streams, d cluster.Candidate) error {
	if err := connect.Migrated(ctx, d); err != nil {
		return err
	}
	if _, err := events.Open(ctx, d.Pool); err != nil {
		return err
	}
	kept := operations.AuditHead{Head: strings.ToLower(c.Head)}
	if c.Count != nil {
		kept.Count = *c.Count
	}
	var v operations.AuditVerified
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, d.Pool, snapshot, func(tx pgx.Tx) (err error) {
		v, err = operations.VerifyAudit(ctx, tx, kept)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = terminal.PrintJSON(streams.Out, shardVerified{d.Name, v})
	} else if v.Fault == nil {
		err = printVerifiedAudit(streams.Out, connect.Prefix(d.Name), v, kept.Count > 0)
	}
	if err == nil && v.Fault != nil {
		return v.Fault
	}
	return err
}

// shardVerified is the result for one database, with the name of the shard.
type shardVerified struct {
	Shard string `json:"shard,omitempty"`
	operations.AuditVerified
}

// maxRedactions is the maximum number of redactions that are printed.
const maxRedactions = 20

// printVerifiedAudit prints the result of a verification of the audit trail. `since` is true if the
// operator gave the head, the hash of the last record, that an earlier verification has printed.
func printVerifiedAudit(w io.Writer, prefix string, v operations.AuditVerified, since bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s verified: none was changed, removed or inserted", prefix, terminal.Counted(v.Records, "record"))
	if v.Pruned > 0 {
		fmt.Fprintf(&b, "; %s before them pruned", progress.Count(v.Pruned))
	}
	b.WriteByte('\n')
	if v.Redactions > 0 {
		fmt.Fprintf(&b, "%s%s of arguments, results and errors, from which users were erased", prefix, terminal.Counted(v.Redactions, "redaction"))
		if since {
			fmt.Fprintf(&b, "; %s since the given head", progress.Count(v.RedactedSince))
		}
		b.WriteString(":\n")
	}
	for _, r := range v.NewestRedactions[:min(maxRedactions, len(v.NewestRedactions))] {
		fmt.Fprintf(&b, "%s  record %d: %s by %s via %s, of %s\n", prefix, r.Record, stamp(r.At), r.Who, r.Via, numbered(r.Redacted))
	}
	if more := v.Redactions - maxRedactions; more > 0 {
		fmt.Fprintf(&b, "%s  … and %s earlier; --json lists up to 100\n", prefix, progress.Count(more))
	}
	if v.Count > 0 {
		fmt.Fprintf(&b, "%s--count=%d --head=%s\n", prefix, v.Count, v.Head)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// numbered lists the numbers of records. If there are more than ten, it lists only the first ten.
func numbered(records []int64) string {
	const limit = 10
	texts := make([]string, 0, limit+1)
	for i, n := range records {
		if i == limit {
			texts = append(texts, fmt.Sprintf("… (%s)", terminal.Counted(int64(len(records)), "record")))
			break
		}
		texts = append(texts, strconv.FormatInt(n, 10))
	}
	if len(records) == 1 {
		return "record " + texts[0]
	}
	return "records " + strings.Join(texts, ", ")
}

type auditPruneCmd struct {
	config.Database `embed:""`
	Before          time.Time     `help:"Delete records from before this time, such as 2026-01-31T00:00:00Z. It must be at least a day ago." placeholder:"TIME" env:"-"`
	AuditAge        time.Duration `help:"Delete records that are older than this, such as 9600h, instead of --before." placeholder:"DURATION"`
}

// Validate implements kong's validation.
func (c *auditPruneCmd) Validate() error {
	err := c.Database.Validate()
	if c.Before.IsZero() && c.AuditAge <= 0 {
		err = errors.Join(err, errors.New("give --before TIME or --audit-age DURATION"))
	}
	return err
}

// Run prunes the audit trail.
func (c *auditPruneCmd) Run(ctx context.Context, streams Streams) error {
	dbs, err := connect.Databases(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer dbs.Close()
	if c.Before.IsZero() {
		c.Before = time.Now().Add(-c.AuditAge)
	}
	return dbs.Each(ctx, func(s *cluster.Database) error {
		start, err := operations.PruneAudit(ctx, s.Pool, operations.OSUser(), c.Before)
		if errors.Is(err, operations.ErrNothingToPrune) {
			_, err = fmt.Fprintln(streams.Out, connect.Prefix(s.Name)+"nothing to do:", err)
			return err
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(streams.Out, "%sthe audit trail now begins after record %d\n%[1]s--count=%[2]d --head=%s\n", connect.Prefix(s.Name), start.Count, start.Head)
		return err
	})
}
