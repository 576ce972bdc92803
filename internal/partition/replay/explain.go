package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/projector/badges"
)

// Limits of an explanation.
const (
	// maxExplained is the maximum number of conversations in an explanation.
	maxExplained = 500
	// maxCounted is the maximum number of counted messages of one conversation.
	maxCounted = 100
	// maxUncounted is the maximum number of listed events that changed no count.
	maxUncounted = 100
	// maxDifferences is the maximum number of differences between tables and log.
	maxDifferences = 100
)

// Explainer explains the badge of a user from the log. It is safe for concurrent use.
type Explainer struct {
	pool *pgxpool.Pool
	log  *events.Log
	// archive, if not nil, has the events that were removed from the log.
	archive *archive.Archive
	// slots limits the number of concurrent searches of the log.
	slots chan struct{}
}

// explanationsAtOnce is the maximum number of explanations that run at the same time, each on one
// connection. Further calls wait until a running explanation has ended. So explanations do not slow
// down reading badges.
const explanationsAtOnce = 2

// NewExplainer returns an explainer of a database and its log.
func NewExplainer(pool *pgxpool.Pool, log *events.Log) *Explainer {
	return &Explainer{pool: pool, log: log, slots: make(chan struct{}, explanationsAtOnce)}
}

// WithArchive returns an explainer that folds the events of an archive before the log, so that
// its explanations can name archived events.
func (x *Explainer) WithArchive(a *archive.Archive) *Explainer {
	return &Explainer{pool: x.pool, log: x.log, archive: a, slots: x.slots}
}

// ArchivedError is returned if the requested events are no longer in the log.
type ArchivedError struct {
	// GivenUp is true if an operator has declared files of the archive lost.
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

// Question says what an explanation contains. The zero value requests the current badge.
type Question struct {
	// At, if not zero, requests the badge as it was at that time, after the events that were
	// folded up to then. Times of folding are known to the second.
	At time.Time
	// Conversation, if not "", limits the listed conversations, messages and uncounted events
	// to one conversation. This conversation is listed even if it has no unread message. Totals
	// and history still cover all conversations of the user.
	Conversation string
	// History requests the total over time.
	History bool
	// Delivered is the maximum number of delivered messages to list; 0 lists none.
	Delivered int
	// Before, if not zero, is a place in the log: only messages that were delivered before this
	// place are listed.
	Before events.Place
}

// Explain explains from the log why the badge of a user is what it is.
//
// It searches the partition of the user. The time depends on the number of the user's events and on
// the size of the log's newest ranges, which have no index yet. The memory depends on the number of
// unread messages. If two explanations are running, Explain waits until one of them has ended.
func (x *Explainer) Explain(ctx context.Context, userID string, q Question) (Explanation, error) {
	e := Explanation{UserID: userID, Partition: x.log.PartitionOf(userID), Differences: []Difference{}, Agrees: true}
	err := x.replay(ctx, userID, q.At, func(snapshot *Snapshot) (_ *search, err error) {
		e.Position = fmt.Sprint(snapshot.Position)
		if snapshot.archive == nil && snapshot.Baseline.Events > 0 {
			until := snapshot.Baseline.Until
			if e.GivenUpEvents, err = snapshot.givenUp(ctx); err != nil {
				return nil, err
			}
			if e.ArchivedUntil = &until; !q.At.IsZero() && q.At.Before(until) {
				return nil, &ArchivedError{Until: until, GivenUp: e.GivenUpEvents > 0}
			}
		}
		return newSearch(userID, snapshot, q), nil
	}, func(snapshot *Snapshot, s *search) error {
		s.explain(&e)
		if err := snapshot.countMembers(ctx, s, &e); err != nil {
			return err
		}
		if !q.At.IsZero() {
			at := q.At.UTC()
			e.At = &at
			return nil
		}
		return snapshot.compareTables(ctx, s, &e)
	})
	if err != nil {
		return Explanation{}, fmt.Errorf("explain the badge of user %q: %w", userID, err)
	}
	return e, nil
}

// replay searches the partition of a user for the events that were folded up to the time `at`, or
// for all folded events if `at` is zero. It first calls the function `begin`, which returns the
// search. Then it passes the events to the search, and calls `end` with the completed search.
func (x *Explainer) replay(ctx context.Context, userID string, at time.Time, begin func(*Snapshot) (*search, error), end func(*Snapshot, *search) error) error {
	select {
	case x.slots <- struct{}{}:
		defer func() { <-x.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return WithSnapshot(ctx, x.pool, x.log.PartitionOf(userID), x.log.Partitions(), func(snapshot *Snapshot) error {
		if err := snapshot.UseArchive(ctx, x.archive); err != nil {
			return err
		}
		s, err := begin(snapshot)
		if err != nil {
			return err
		}
		if err := snapshot.restoreUsers(ctx, s.replay, []string{userID}, func() {}); err != nil {
			return err
		}
		s.begin()
		times, err := store.LoadFoldTimes(ctx, snapshot.Tx, snapshot.Partition)
		if err != nil {
			return err
		}
		err = snapshot.eachOf(ctx, []string{userID}, s.replay, func(r *events.Record, item store.Item, dead error) error {
			if folded := times.FoldedAt(r); at.IsZero() || !folded.After(at) {
				s.visit(r, folded.UTC(), &item, dead)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return end(snapshot, s)
	})
}

// countMembers sets Members in each conversation of e that is a room of which the user is a member.
// It counts the members of the room in all partitions that the database holds.
func (snapshot *Snapshot) countMembers(ctx context.Context, s *search, e *Explanation) error {
	rooms := map[string]*ExplainedConversation{}
	for i := range e.Conversations {
		if c := &e.Conversations[i]; s.user.Conversations[c.ConversationID].Member() {
			rooms[c.ConversationID] = c
		}
	}
	if len(rooms) == 0 {
		return nil
	}
	var id string
	var members int64
	args := []any{slices.Collect(maps.Keys(rooms))}
	return query.Each(ctx, snapshot.Tx, "count the members of rooms", statements.Get("count the members of rooms"), args, []any{&id, &members}, func() error {
		rooms[id].Members = members
		return nil
	})
}

// compareTables adds to e the user's badge according to the tables. It compares the rows of the
// user and of the user's rooms with the state in s, and adds the differences to e. Comparing
// removes the state from s.
func (snapshot *Snapshot) compareTables(ctx context.Context, s *search, e *Explanation) error {
	table, err := badges.NewReader(snapshot.Tx, events.NewLayout(snapshot.Partitions, []int{snapshot.Partition})).Badge(ctx, e.UserID)
	if err != nil {
		return err
	}
	e.Table = &table
	c, err := snapshot.newComparison(ctx, VerifyOptions{Users: []string{e.UserID}, Found: e.differs})
	if err != nil {
		return err
	}
	e.Version = c.healed[e.UserID].user(e.Version)
	return c.compare(ctx, s.replay)
}

// differs adds a difference between the tables and the log to e, or counts it if e already has
// maxDifferences differences.
func (e *Explanation) differs(d Difference) {
	e.Agrees = false
	if len(e.Differences) == maxDifferences {
		e.MoreDifferences++
		return
	}
	d.Table, d.Log = cut(d.Table), cut(d.Log)
	e.Differences = append(e.Differences, d)
}
