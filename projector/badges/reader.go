// Package badges reads the badges and conversations of users from the tables.
package badges

import (
	"context"
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
	"github.com/badged/badged/projector/lag"
	"github.com/badged/badged/pubsub"
)

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

const badgeColumns = `p.epoch, coalesce(u.version, 0), coalesce(u.total, 0), coalesce(u.mentions, 0), coalesce(u.categories::text, '{}')`

// Badge returns the badge of a user, all zeros for a user without events.
func (r *Reader) Badge(ctx context.Context, userID string) (pubsub.Badge, error) {
	p := events.PartitionOf(userID, r.partitions)
	sql := fmt.Sprintf(`SELECT %s
FROM badged.partitions AS p LEFT JOIN badged.users_p%02[2]d AS u ON u.user_id = $1
WHERE p.partition_id = %[2]d`, badgeColumns, p)
	b := pubsub.Badge{UserID: userID}
	if err := r.q.QueryRow(ctx, sql, userID).Scan(badgeTargets(&b)...); err != nil {
		return pubsub.Badge{}, fmt.Errorf("read the badge of user %q: %w", userID, err)
	}
	return b, nil
}

// Badges returns the badges of up to MaxBadges users, in the order given.
func (r *Reader) Badges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	badges := make([]pubsub.Badge, 0, len(userIDs))
	var b pubsub.Badge
	targets := append([]any{&b.UserID}, badgeTargets(&b)...)
	rows, err := r.q.Query(ctx, `SELECT k.user_id, `+badgeColumns+`
FROM unnest($1::text[], $2::smallint[]) WITH ORDINALITY AS k (user_id, partition_id, ord)
JOIN badged.partitions AS p USING (partition_id)
LEFT JOIN badged.users AS u ON u.partition_id = k.partition_id AND u.user_id = k.user_id
ORDER BY k.ord`, userIDs, r.partitionsOf(userIDs))
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
	rows, err := r.q.Query(ctx, `SELECT k.user_id, p.epoch, coalesce(u.version, 0), coalesce(u.total, 0), coalesce(u.mentions, 0)
FROM unnest($1::text[], $2::smallint[]) WITH ORDINALITY AS k (user_id, partition_id, ord)
JOIN badged.partitions AS p USING (partition_id)
LEFT JOIN badged.users AS u ON u.partition_id = k.partition_id AND u.user_id = k.user_id
ORDER BY k.ord`, userIDs, r.partitionsOf(userIDs))
	if err != nil {
		return nil, fmt.Errorf("read the versions of %d users: %w", len(userIDs), err)
	}
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

const publicColumns = `conversation_id, unread, mentions, ` + FirstUnreadSQL + `, read_seq, last_seq,
       level::text, category, marked_unread,
       ` + hasLeft + ` AND ` + isAnything + ` AS has_left, version`

// FirstUnreadSQL is BoundedSet.Min in SQL: the least known seq of the block,
// or else that of the words, of the ranges, or the start of the block.
const FirstUnreadSQL = `coalesce(unread_block[4], ('x' || encode(substr(unread_words, 1, 8), 'hex'))::bit(64)::bigint, lower(unread_set), unread_block[1], 0)`

// hasLeft is true of conversations that are hidden from every list.
const hasLeft = `(left_seq IS NOT NULL AND left_seq >= last_seq)`

// isAnything is true of conversations that differ from a new one.
const isAnything = `(last_seq > 0 OR read_seq > 0 OR marked_unread OR level <> 'all')`

// showsAnything is true of conversations that a client must know: they have
// something unread or a level other than the default.
const showsAnything = `((unread > 0 OR marked_unread OR level <> 'all') AND NOT ` + hasLeft + `)`

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
	sql := fmt.Sprintf(`SELECT k.ord, w.whole, %[1]s, c.*
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS k (user_id, epoch, version, ord)
JOIN badged.partitions AS p ON p.partition_id = %[2]d
LEFT JOIN badged.users_p%02[2]d AS u ON u.user_id = k.user_id
CROSS JOIN LATERAL (SELECT k.epoch <> p.epoch OR k.version > coalesce(u.version, 0) AS whole) AS w
LEFT JOIN LATERAL (
    SELECT %[3]s
    FROM badged.conversations_p%02[2]d
    WHERE user_id = k.user_id AND CASE WHEN w.whole THEN %[4]s ELSE version > k.version END
    ORDER BY version DESC, conversation_id
    LIMIT %[5]d
) AS c ON true
ORDER BY k.ord, c.version DESC, c.conversation_id`, badgeColumns, partition, publicColumns, showsAnything, MaxSnapshot+1)
	rows, err := r.q.Query(ctx, sql, userIDs, epochs, versions)
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
	where := ""
	if unreadOnly {
		where = `AND (unread > 0 OR marked_unread)`
	}
	sql := fmt.Sprintf(`SELECT %s
FROM badged.conversations_p%02d
WHERE user_id = $1 AND version > 0 AND (version < $2 OR version = $2 AND conversation_id > $3) AND NOT %s AND %s %s
ORDER BY version DESC, conversation_id
LIMIT $4`, publicColumns, events.PartitionOf(userID, r.partitions), hasLeft, isAnything, where)
	rows, err := r.q.Query(ctx, sql, userID, version, conversationID, limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("read the conversations of user %q: %w", userID, err)
	}
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
	err := r.q.QueryRow(ctx, fmt.Sprintf(`SELECT %s
FROM badged.conversations_p%02d
WHERE user_id = $1 AND conversation_id = $2`, publicColumns, events.PartitionOf(userID, r.partitions)), userID, conversationID).Scan(c.targets()...)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return pubsub.Conversation{}, fmt.Errorf("read conversation %q of user %q: %w", conversationID, userID, err)
	}
	return c.conversation(), nil
}

// Head returns a transaction id for Folded: everything committed until now is
// at or before it.
func (r *Reader) Head(ctx context.Context) (transactionID int64, err error) {
	if err := r.q.QueryRow(ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1`).Scan(&transactionID); err != nil {
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
	positions, err := lag.PositionsOf(ctx, r.q, partitions)
	if err != nil {
		return false, fmt.Errorf("read the positions of %d users: %w", len(userIDs), err)
	}
	args := []any{transactionID}
	var behind []string
	for _, p := range partitions {
		behind = append(behind, fmt.Sprintf(`EXISTS (
    SELECT FROM badged.%s
    WHERE %s AND transaction_id <= $1::bigint::text::xid8)`, events.Topic(p), lag.IsBehind(len(args)+1)))
		args = append(args, positions[p].TransactionID, positions[p].Offset)
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

// badgeTargets are the scan targets for badgeColumns.
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

// nullableConversation is a row of publicColumns, or of nulls.
type nullableConversation struct {
	id, level, category                                    *string
	unread, mentions, firstUnread, readSeq, lastSeq, verNo *int64
	marked, left                                           *bool
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
		ConversationID: *c.id, Unread: *c.unread, Mentions: *c.mentions, FirstUnreadSeq: *c.firstUnread,
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
