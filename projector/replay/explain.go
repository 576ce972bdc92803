package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/projector/internal/store"
)

// Limits of an explanation.
const (
	// maxExplained is the most conversations in an explanation.
	maxExplained = 500
	// maxCounted is the most counted messages of one conversation in it.
	maxCounted = 100
	// maxUncounted is the most events in it that changed nothing.
	maxUncounted = 100
	// maxDifferences is the most differences between tables and log in it.
	maxDifferences = 100
)

// Explainer explains from the log why the badge of a user is what it is. It is
// safe for concurrent use.
type Explainer struct {
	pool *pgxpool.Pool
	log  *events.Log
	// archive, if not nil, has what was cut off the log.
	archive *archive.Archive
	// slots bounds how many searches of the log run at once.
	slots chan struct{}
}

// explanationsAtOnce is how many connections an explainer uses. More
// explanations wait, so that they do not slow down reading badges.
const explanationsAtOnce = 2

// NewExplainer returns an explainer of a database and its log.
func NewExplainer(pool *pgxpool.Pool, log *events.Log) *Explainer {
	return &Explainer{pool: pool, log: log, slots: make(chan struct{}, explanationsAtOnce)}
}

// WithArchive returns an explainer that folds an archive of the log and then
// the log, so that it can name events that were cut off.
func (x *Explainer) WithArchive(a *archive.Archive) *Explainer {
	return &Explainer{pool: x.pool, log: x.log, archive: a, slots: x.slots}
}

// ArchivedError is returned if the events asked for are no longer in the log.
type ArchivedError struct {
	// GivenUp is set if files of the archive were given up.
	GivenUp bool
	// Until is when the latest archived event was appended.
	Until time.Time
}

// Error implements error.
func (e *ArchivedError) Error() string {
	until := e.Until.UTC().Format(time.RFC3339)
	if e.GivenUp {
		return fmt.Sprintf("events until %s are archived, and files of the archive were given up: give a later time", until)
	}
	return fmt.Sprintf("events until %s are archived: give --archive DIR, or a later time", until)
}

// Question says what an explanation contains. The zero value asks for the
// badge as it is now.
type Question struct {
	// At, if not zero, asks for the badge at that time: what was folded by
	// then, to the second.
	At time.Time
	// Conversation, if not "", limits the conversations, the messages and the
	// uncounted events to one conversation, even if nothing in it is unread.
	// The totals and the history stay those of the user.
	Conversation string
	// History asks for the total over time.
	History bool
	// Delivered is the most delivered messages to list; 0 lists none.
	Delivered int
	// Before, if not zero, lists only messages delivered before that place.
	Before events.Place
}

// Explain returns why the badge of a user is what it is.
//
// It searches the partition of the user: its cost grows with the log, its
// memory with what is unread. Two run at a time; others wait.
func (x *Explainer) Explain(ctx context.Context, userID string, q Question) (Explanation, error) {
	e := Explanation{UserID: userID, Partition: x.log.PartitionOf(userID), Differences: []Difference{}, Agrees: true}
	err := x.replay(ctx, userID, q.At, func(in *Snapshot) (_ *search, err error) {
		e.Position = fmt.Sprint(in.Position)
		if in.archive == nil && in.Baseline.Events > 0 {
			until := in.Baseline.Until
			if e.GivenUpEvents, err = in.givenUp(ctx); err != nil {
				return nil, err
			}
			if e.ArchivedUntil = &until; !q.At.IsZero() && q.At.Before(until) {
				return nil, &ArchivedError{Until: until, GivenUp: e.GivenUpEvents > 0}
			}
		}
		return newSearch(userID, in, q), nil
	}, func(in *Snapshot, s *search) error {
		s.explain(&e)
		if err := in.countMembers(ctx, s, &e); err != nil {
			return err
		}
		if !q.At.IsZero() {
			at := q.At.UTC()
			e.At = &at
			return nil
		}
		return in.compareTables(ctx, s, &e)
	})
	if err != nil {
		return Explanation{}, fmt.Errorf("explain the badge of user %q: %w", userID, err)
	}
	return e, nil
}

// replay searches the partition of a user for what was folded until at, or all
// if at is zero. begin returns the search; end gets it when it is complete.
func (x *Explainer) replay(ctx context.Context, userID string, at time.Time, begin func(*Snapshot) (*search, error), end func(*Snapshot, *search) error) error {
	select {
	case x.slots <- struct{}{}:
		defer func() { <-x.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return WithSnapshot(ctx, x.pool, x.log.PartitionOf(userID), x.log.Partitions(), func(in *Snapshot) error {
		if err := in.UseArchive(ctx, x.archive); err != nil {
			return err
		}
		s, err := begin(in)
		if err != nil {
			return err
		}
		if err := in.restoreUsers(ctx, s.replay, []string{userID}, func() {}); err != nil {
			return err
		}
		s.begin()
		times, err := store.LoadFoldTimes(ctx, in.Tx, in.Partition)
		if err != nil {
			return err
		}
		err = in.eachOf(ctx, []string{userID}, s.replay, func(r *events.Record, it store.Item, dead error) error {
			if folded := times.Of(r); at.IsZero() || !folded.After(at) {
				s.visit(r, folded.UTC(), &it, dead)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return end(in, s)
	})
}

// countMembers adds the members of the user's rooms to e, those in other partitions
// too.
func (in *Snapshot) countMembers(ctx context.Context, s *search, e *Explanation) error {
	rooms := map[string]*ExplainedConversation{}
	for i := range e.Conversations {
		if c := &e.Conversations[i]; s.user.Conversations[c.ConversationID].Member() {
			rooms[c.ConversationID] = c
		}
	}
	if len(rooms) == 0 {
		return nil
	}
	rows, _ := in.Tx.Query(ctx, statements.Get("count the members of rooms"), slices.Collect(maps.Keys(rooms)))
	var id string
	var members int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &members}, func() error {
		rooms[id].Members = members
		return nil
	}); err != nil {
		return fmt.Errorf("count the members of rooms: %w", err)
	}
	return nil
}

// compareTables adds the badge in the tables to e, and where the rows of the user and
// of the user's rooms differ from the log. It empties s.
func (in *Snapshot) compareTables(ctx context.Context, s *search, e *Explanation) error {
	table, err := badges.NewReader(in.Tx, events.NewLayout(in.Partitions, []int{in.Partition})).Badge(ctx, e.UserID)
	if err != nil {
		return err
	}
	e.Table = &table
	healed, err := in.HealedUsers(ctx)
	if err != nil {
		return err
	}
	e.Version = healed[e.UserID].user(e.Version)
	c := Comparison{In: in, Healed: healed, Options: VerifyOptions{Users: []string{e.UserID}, Found: e.differs}}
	return c.Compare(ctx, s.replay)
}

// differs adds a difference between the tables and the log.
func (e *Explanation) differs(d Difference) {
	e.Agrees = false
	if len(e.Differences) == maxDifferences {
		e.MoreDifferences++
		return
	}
	d.Table, d.Log = cut(d.Table), cut(d.Log)
	e.Differences = append(e.Differences, d)
}
