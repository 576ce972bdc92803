// Package badges reads the badges and conversations of users from the tables.
package badges

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/sqlfile"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/logread"
	"github.com/badged/badged/pubsub"
)

//go:embed badges.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// ErrBadCursor is returned for a cursor that Conversations did not return.
var ErrBadCursor = errors.New("not a cursor of this list")

// Limits of one read.
const (
	// MaxSnapshot is the most conversations in a snapshot.
	MaxSnapshot = 500
	// MaxPage is the most conversations in a page.
	MaxPage = 500
	// MaxBadges is the most users in one Badges or Versions call.
	MaxBadges = 1000
)

// Reader reads badges from the tables alone. Each answer is one statement and
// so one snapshot: a total and its parts always agree. It is safe for
// concurrent use.
type Reader struct {
	q          events.Querier
	partitions int
}

// NewReader returns a reader of a database with so many partitions. A pool set
// up by projector.ConfigurePool serves it best.
func NewReader(q events.Querier, partitions int) *Reader {
	return &Reader{q: q, partitions: partitions}
}

// Badge returns the badge of a user, all zeros for a user without events.
func (r *Reader) Badge(ctx context.Context, userID string) (pubsub.Badge, error) {
	p := events.PartitionOf(userID, r.partitions)
	b := pubsub.Badge{UserID: userID}
	if err := r.q.QueryRow(ctx, statements.Of(p, "read a badge"), userID, p).Scan(badgeTargets(&b)...); err != nil {
		return pubsub.Badge{}, fmt.Errorf("read the badge of user %q: %w", userID, err)
	}
	return b, nil
}

// Badges returns the badges of up to MaxBadges users, in the order given.
func (r *Reader) Badges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	badges := make([]pubsub.Badge, 0, len(userIDs))
	var b pubsub.Badge
	targets := append([]any{&b.UserID}, badgeTargets(&b)...)
	rows, err := r.q.Query(ctx, statements.Get("read badges"), userIDs, r.partitionsOf(userIDs))
	if err == nil {
		_, err = pgx.ForEachRow(rows, targets, func() error {
			badges = append(badges, b)
			b.Categories = nil // the next badge needs its own map
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read the badges of %d users: %w", len(userIDs), err)
	}
	return badges, nil
}

// Versions returns the badges of up to MaxBadges users without categories, in
// the order given: enough to find clients with another state.
func (r *Reader) Versions(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	rows, _ := r.q.Query(ctx, statements.Get("read versions"), userIDs, r.partitionsOf(userIDs))
	versions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (pubsub.Badge, error) {
		var b pubsub.Badge
		err := row.Scan(&b.UserID, &b.Epoch, &b.Version, &b.Total, &b.Mentions)
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the versions of %d users: %w", len(userIDs), err)
	}
	return versions, nil
}

// Now returns the time by the database's clock.
func (r *Reader) Now(ctx context.Context) (now time.Time, err error) {
	if err := r.q.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return now, fmt.Errorf("read the clock of the database: %w", err)
	}
	return now, nil
}

// Snapshot returns the badge of a user and its conversations with something to
// show: at most MaxSnapshot, most recently changed first.
func (r *Reader) Snapshot(ctx context.Context, userID string) (pubsub.Snapshot, error) {
	states, err := r.States(ctx, events.PartitionOf(userID, r.partitions), []pubsub.Held{{UserID: userID}})
	if err != nil {
		return pubsub.Snapshot{}, err
	}
	return states[0], nil
}

// States returns what brings the holders of older states up to date, for users
// of one partition, in the order given and in one snapshot. That is the
// conversations that changed since, even if they have nothing to show now. If
// the epoch is another or the tables do not know the version, it is the whole
// state, as from Snapshot. If more than MaxSnapshot have changed, More is set
// and the result is incomplete: ask again without an epoch.
func (r *Reader) States(ctx context.Context, partition int, held []pubsub.Held) ([]pubsub.Snapshot, error) {
	userIDs, epochs, versions := make([]string, len(held)), make([]string, len(held)), make([]int64, len(held))
	states := make([]pubsub.Snapshot, len(held))
	for i, h := range held {
		userIDs[i], epochs[i], versions[i] = h.UserID, h.Epoch, h.Version
		states[i] = pubsub.Snapshot{Badge: pubsub.Badge{UserID: h.UserID}, Conversations: []pubsub.Conversation{}}
	}
	sql := strings.ReplaceAll(statements.Of(partition, "read states"), "MOST", strconv.Itoa(MaxSnapshot+1))
	rows, err := r.q.Query(ctx, sql, userIDs, epochs, versions, partition)
	if err == nil {
		var (
			ord   int
			whole bool
			b     pubsub.Badge
			c     nullableConversation
		)
		_, err = pgx.ForEachRow(rows, slices.Concat([]any{&ord, &whole}, badgeTargets(&b), c.targets()), func() error {
			s := &states[ord-1]
			b.UserID = s.UserID
			s.Badge, s.Whole = b, whole
			if c.id != nil {
				s.Conversations = append(s.Conversations, c.conversation())
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read the states of %d users of partition %d: %w", len(held), partition, err)
	}
	for i := range states {
		if s := &states[i]; len(s.Conversations) > MaxSnapshot {
			s.Conversations, s.More = s.Conversations[:MaxSnapshot], true
		}
	}
	return states, nil
}

// Conversations returns a page of a user's conversations, most recently
// changed first, and the cursor of the next page, "" after the last.
// Conversations that change between two pages move to the front, which later
// pages do not show. limit is 1 to MaxPage; an unknown cursor is ErrBadCursor.
func (r *Reader) Conversations(ctx context.Context, userID string, unreadOnly bool, limit int, cursor string) ([]pubsub.Conversation, string, error) {
	// The place before the first row, in descending order.
	version, conversationID := int64(1<<63-1), ""
	if cursor != "" {
		var err error
		if version, conversationID, err = parseCursor(cursor); err != nil {
			return nil, "", err
		}
	}
	p := events.PartitionOf(userID, r.partitions)
	sql := statements.Of(p, "read a page")
	if unreadOnly {
		sql = statements.Of(p, "read an unread page")
	}
	rows, _ := r.q.Query(ctx, sql, userID, version, conversationID, limit+1)
	page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (pubsub.Conversation, error) {
		var c nullableConversation
		err := row.Scan(c.targets()...)
		return c.conversation(), err
	})
	if err != nil {
		return nil, "", fmt.Errorf("read the conversations of user %q: %w", userID, err)
	}
	if len(page) <= limit {
		return page, "", nil
	}
	page = page[:limit]
	last := page[limit-1]
	return page, formatCursor(last.Version, last.ConversationID), nil
}

// Conversation returns a conversation of a user, empty if there is none.
func (r *Reader) Conversation(ctx context.Context, userID, conversationID string) (pubsub.Conversation, error) {
	if events.CheckID(conversationID) != "" {
		return pubsub.Conversation{}, nil // no event can name it
	}
	var c nullableConversation
	err := r.q.QueryRow(ctx, statements.Of(events.PartitionOf(userID, r.partitions), "read a conversation"), userID, conversationID).Scan(c.targets()...)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return pubsub.Conversation{}, fmt.Errorf("read conversation %q of user %q: %w", conversationID, userID, err)
	}
	return c.conversation(), nil
}

// Head returns a transaction id for Folded: everything committed until now is
// at or before it.
func (r *Reader) Head(ctx context.Context) (transactionID int64, err error) {
	if err := r.q.QueryRow(ctx, statements.Get("read the head")).Scan(&transactionID); err != nil {
		return 0, fmt.Errorf("read the head of the log: %w", err)
	}
	return transactionID, nil
}

// Folded reports whether the badges of these users include everything that
// transactions up to transactionID appended for them.
func (r *Reader) Folded(ctx context.Context, userIDs []string, transactionID int64) (bool, error) {
	var partitions []int
	for _, p := range r.partitionsOf(userIDs) {
		partitions = append(partitions, int(p))
	}
	slices.Sort(partitions)
	partitions = slices.Compact(partitions)
	cursors, err := logread.LoadAll(ctx, r.q, partitions)
	if err != nil {
		return false, fmt.Errorf("read the positions of %d users: %w", len(userIDs), err)
	}
	args := []any{transactionID}
	var behind []string
	for i, p := range partitions {
		const exists = `EXISTS (SELECT FROM badged.%s WHERE %s AND transaction_id <= $1::bigint::text::xid8)`
		behind = append(behind, fmt.Sprintf(exists, events.Topic(p), logread.After(len(args)+1)))
		if len(cursors[i].Pending) == 0 {
			args = append(args, cursors[i].TransactionID, cursors[i].Offset)
			continue
		}
		behind = append(behind, fmt.Sprintf(exists, events.Topic(p), logread.Late(len(args)+1)))
		args = append(args, cursors[i].Args()...)
	}
	var folded bool
	err = r.q.QueryRow(ctx, `SELECT NOT (`+strings.Join(behind, " OR ")+`)`, args...).Scan(&folded)
	if err != nil {
		return false, fmt.Errorf("read the positions of %d users: %w", len(userIDs), err)
	}
	return folded, nil
}

func (r *Reader) partitionsOf(userIDs []string) []int16 {
	partitions := make([]int16, len(userIDs))
	for i, id := range userIDs {
		partitions[i] = int16(events.PartitionOf(id, r.partitions)) //nolint:gosec // at most events.MaxPartitions
	}
	return partitions
}

// badgeTargets are the scan targets for the columns of a badge.
func badgeTargets(b *pubsub.Badge) []any {
	return []any{&b.Epoch, &b.Version, &b.Total, &b.Mentions, (*categories)(&b.Categories)}
}

// categories scans the JSON object of totals by category.
type categories map[string]int64

// Scan implements sql.Scanner.
func (c *categories) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("categories have type %T, want string", src)
	}
	*c = map[string]int64{}
	return json.Unmarshal([]byte(text), (*map[string]int64)(c))
}

// nullableConversation is a row with the columns of a conversation, or of nulls.
type nullableConversation struct {
	id, level, category                       *string
	unread, mentions, readSeq, lastSeq, verNo *int64
	firstUnread                               firstUnread
	marked, left                              *bool
}

// firstUnread is the first seq of a stored set.
type firstUnread int64

// ScanBytes implements pgtype.BytesScanner.
func (f *firstUnread) ScanBytes(stored []byte) error {
	first, err := badge.FirstOf(stored)
	*f = firstUnread(first)
	return err
}

func (c *nullableConversation) targets() []any {
	return []any{
		&c.id, &c.unread, &c.mentions, &c.firstUnread, &c.readSeq, &c.lastSeq,
		&c.level, &c.category, &c.marked, &c.left, &c.verNo,
	}
}

func (c *nullableConversation) conversation() pubsub.Conversation {
	if c.id == nil {
		return pubsub.Conversation{}
	}
	return pubsub.Conversation{
		ConversationID: *c.id, Unread: *c.unread, Mentions: *c.mentions, FirstUnreadSeq: int64(c.firstUnread),
		ReadSeq: *c.readSeq, LastSeq: *c.lastSeq, Level: *c.level, Category: *c.category,
		MarkedUnread: *c.marked, Left: *c.left, Version: *c.verNo,
	}
}

func formatCursor(version int64, conversationID string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(version, 10) + ":" + conversationID))
}

func parseCursor(cursor string) (version int64, conversationID string, err error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, "", ErrBadCursor
	}
	text, conversationID, ok := strings.Cut(string(b), ":")
	if !ok {
		return 0, "", ErrBadCursor
	}
	if version, err = strconv.ParseInt(text, 10, 64); err != nil || events.CheckID(conversationID) != "" {
		return 0, "", ErrBadCursor
	}
	return version, conversationID, nil
}
