package replay

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/pg/query"
)

// Verifier compares the tables of one database with its log. It is safe for concurrent use.
type Verifier struct {
	pool *pgxpool.Pool
	log  *events.Log
	// archive, if not nil, has the events that were removed from the log.
	archive *archive.Archive
}

// Held returns the partitions that the database holds. Other databases may hold other partitions.
func (v *Verifier) Held(ctx context.Context) ([]int, error) { return eventlog.Held(ctx, v.pool) }

// NotFolded returns how many events of the given partitions are not folded yet. Verify ignores
// these events.
func (v *Verifier) NotFolded(ctx context.Context, partitions []int) (int64, error) {
	return lag.NotFolded(ctx, v.pool, partitions)
}

// NewVerifier returns a verifier of a database and its log.
func NewVerifier(pool *pgxpool.Pool, log *events.Log) *Verifier {
	return &Verifier{pool: pool, log: log}
}

// WithArchive returns a verifier whose replays start with the events of an archive instead of the
// baseline.
func (v *Verifier) WithArchive(a *archive.Archive) *Verifier {
	return &Verifier{pool: v.pool, log: v.log, archive: a}
}

// VerifyOptions says which users of a partition Verify compares, and how.
type VerifyOptions struct {
	// Users are the users to compare, who must belong to the partition. If empty, all users in
	// the tables or the log are compared.
	Users []string
	// Memory is the approximate limit in bytes for the state of users and the event keys together.
	// If states and keys need more, the log is read several times. Default 256 MiB.
	Memory int64
	// Found is called for each difference. Required.
	Found func(Difference)
	// Progress, if not nil, receives the number of events that are read. It is not called if Users
	// has 1 to 16 users, since Postgres then searches the log for their events.
	Progress Progress
}

// Verified is the result of a verification.
type Verified struct {
	// Position is the position up to which the log was replayed and the tables were folded.
	Position events.Position
	// Users and Conversations count the users and conversations of the log.
	Users, Conversations int64
	// Differences is the number of calls of Found.
	Differences int64
}

// Difference is a place where the tables differ from the log.
type Difference struct {
	Partition      int    `json:"partition" minimum:"0" doc:"The partition of the rows."`
	UserID         string `json:"user_id" doc:"The user; empty if the difference is in a room."`
	ConversationID string `json:"conversation_id,omitempty" doc:"The conversation or room; absent if the difference is in the user's own row."`
	Field          string `json:"field" doc:"The name of the column that differs; row if the tables lack the row or have a row that they should not have."`
	Table          string `json:"table" doc:"The value in the tables, as text; for row, present or absent."`
	Log            string `json:"log" doc:"The value according to the log, as text; for row, present or absent."`
}

// String returns the difference as a sentence. Long values are cut.
func (d Difference) String() string {
	var whose string
	switch {
	case d.UserID == "":
		whose = fmt.Sprintf("room %q", d.ConversationID)
	case d.ConversationID == "":
		whose = fmt.Sprintf("user %q", d.UserID)
	default:
		whose = fmt.Sprintf("user %q, conversation %q", d.UserID, d.ConversationID)
	}
	if d.Field == rowField {
		return fmt.Sprintf("%s: the row is %s in the table, %s by the log", whose, d.Table, d.Log)
	}
	return fmt.Sprintf("%s: %s is %s in the table, %s by the log", whose, d.Field, shown(d.Table), shown(d.Log))
}

const (
	rowField = "row"
	present  = "present"
	absent   = "absent"
)

// shown returns a value in readable form.
func shown(value string) string {
	if value == "" {
		return "empty"
	}
	return cut(value)
}

// cut shortens long values.
func cut(value string) string {
	const limit = 120
	if len(value) <= limit {
		return value
	}
	return strings.ToValidUTF8(value[:limit], "") + "…"
}

const defaultVerifyMemory = 256 << 20

// Verify replays the log of a partition up to the position to which the tables are folded, and
// compares the result with the tables in the same snapshot. Meanwhile the projector continues to
// fold new events. Verify uses one read-only transaction on one connection. The transaction delays
// no event, but until it ends, vacuum cannot remove new dead rows of any table in the database.
func (v *Verifier) Verify(ctx context.Context, partition int, options VerifyOptions) (Verified, error) {
	if options.Memory <= 0 {
		options.Memory = defaultVerifyMemory
	}
	if options.Progress == nil {
		options.Progress = Unwatched{}
	}
	var result Verified
	err := WithSnapshot(ctx, v.pool, partition, v.log.Partitions(), func(snapshot *Snapshot) error {
		if err := snapshot.UseArchive(ctx, v.archive); err != nil {
			return err
		}
		c, err := snapshot.newComparison(ctx, options)
		if err != nil {
			return err
		}
		if n := len(options.Users); n > 0 && n <= maxSought {
			err = c.few(ctx)
		} else {
			err = c.many(ctx)
		}
		result = c.result
		return err
	})
	if err != nil {
		return result, fmt.Errorf("verify partition %d: %w", partition, err)
	}
	return result, nil
}

// samplePages is the minimum number of pages of the table of users from which a sample is drawn. A
// larger sample is drawn from as many pages as it has users.
const samplePages = 50

// Sample returns up to n users of a partition, drawn at random from its tables.
func (v *Verifier) Sample(ctx context.Context, partition, n int) ([]string, error) {
	return query.All(ctx, v.pool, fmt.Sprintf("draw users of partition %d", partition), pgx.RowTo[string],
		statements.Of(partition, "sample users"), n, max(samplePages, n))
}

// few compares at most maxSought users with the log. It searches the log for their events.
func (c *comparison) few(ctx context.Context) error {
	r, err := c.snapshot.replayOf(ctx, c.options.Users)
	if err != nil {
		return err
	}
	return c.compare(ctx, r)
}

// many compares all users, or more than maxSought users, with the log. It divides the users into
// shares that fit into memory, and reads the log once for each share.
func (c *comparison) many(ctx context.Context) error {
	length, err := c.snapshot.Length(ctx)
	if err != nil {
		return err
	}
	c.options.Progress.Planned(c.snapshot.Partition, length)
	// If the event keys do not fit into memory, first find all repeated events in separate passes
	// over the log. The repeated events are the same for every share.
	var repeats map[events.Place]store.UserSet
	half := max(c.options.Memory/2, keyWeight)
	keys, err := c.snapshot.weighKeys(ctx, length)
	if err != nil {
		return err
	}
	if keys > half {
		c.options.Progress.Planned(c.snapshot.Partition, length*(keys/half+1))
		if repeats, err = c.snapshot.repeats(ctx, keys, half, c.read); err != nil {
			return err
		}
	}
	listed := make(map[string]bool, len(c.options.Users))
	for _, u := range c.options.Users {
		listed[u] = true
	}
	wants := func(user string) bool { return listed[user] || len(listed) == 0 }
	for s, more := AllUsers(), true; more; {
		r, err := c.snapshot.ReplayShare(ctx, &s, wants, repeats, half, c.read)
		if err != nil {
			return err
		}
		if err := c.compare(ctx, r); err != nil {
			return err
		}
		if s, more = s.Next(); more {
			c.options.Progress.Planned(c.snapshot.Partition, length)
		}
	}
	return nil
}

// read reports the number of records that were read.
func (c *comparison) read(records int) { c.options.Progress.Done(records, records) }
