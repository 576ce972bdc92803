// Package store keeps the badges in Postgres: the statements on the tables of
// a partition, the transaction that commits a batch, the keys that detect
// duplicates, and the caches that save loading rows.
package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgwire"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/pubsub"
)

// Tables holds the statements on the tables of one partition.
type Tables struct {
	partition int

	moveSQL                string
	moveAppendedSQL        string // with pending transactions
	moveAppendedSoleSQL    string // without
	requireStateSQL        string
	StateSQL               string
	LoadUsersSQL           string
	LoadConversationsSQL   string
	LoadUnreadSQL          string
	insertUsersSQL         rowsSQL
	updateUsersSQL         rowsSQL
	insertConversationsSQL rowsSQL
	updateConversationsSQL rowsSQL
}

// NewTables returns the statements on the live tables of a partition.
func NewTables(partition int) *Tables { return TablesNamed(partition, fmt.Sprintf("%02d", partition)) }

// TablesNamed returns the statements on the tables of a partition whose names
// end with suffix.
func TablesNamed(partition int, suffix string) *Tables {
	return &Tables{
		partition: partition,

		moveSQL:             moveSQL(partition),
		moveAppendedSQL:     moveAppendedSQL(partition, true),
		moveAppendedSoleSQL: moveAppendedSQL(partition, false),

		requireStateSQL: fmt.Sprintf(`SELECT badged.require(epoch = $1 AND revision = $2 AND incarnation = %[2]s, '%[3]s'),
       badged.require((SELECT max(generation) FROM badged.dedup_generations WHERE partition_id = %[1]d) = $3, '%[4]s')
FROM badged.partitions WHERE partition_id = %[1]d`, partition, IncarnationSQL, codeRevised, codeFenced),

		StateSQL: fmt.Sprintf(`SELECT epoch, revision,
       (SELECT max(generation) FROM badged.dedup_generations WHERE partition_id = %[1]d),
       incarnation = %[2]s, clock_timestamp()
FROM badged.partitions WHERE partition_id = %[1]d`, partition, IncarnationSQL),

		LoadUsersSQL: `SELECT ` + UserColumnsSQL + `
FROM badged.users_p` + suffix + `
WHERE user_id = ANY ($1::text[])`,

		LoadConversationsSQL: `SELECT ` + ConversationColumns + `
FROM unnest($1::text[], $2::text[]) AS k (user_id, conversation_id)
JOIN badged.conversations_p` + suffix + ` AS c USING (user_id, conversation_id)`,

		// The conversations that user.read_all can change.
		LoadUnreadSQL: `SELECT ` + ConversationColumns + `
FROM badged.conversations_p` + suffix + ` AS c
WHERE user_id = ANY ($1::text[]) AND (read_seq < last_seq OR marked_unread)`,

		insertUsersSQL: newRowsSQL(`INSERT INTO badged.users_p` + suffix + `
       (partition_id, user_id, version, total, mentions, categories, claims)
SELECT ` + fmt.Sprint(partition) + `, ` + userValues),

		// Fails unless every row exists.
		updateUsersSQL: newRowsSQL(`WITH updated AS (
    UPDATE badged.users_p` + suffix + ` AS u
    SET version = v.version, total = v.total, mentions = v.mentions, categories = v.categories, claims = v.claims
    FROM (SELECT ` + userValues + `) AS v (user_id, version, total, mentions, categories, claims)
    WHERE u.user_id = v.user_id
    RETURNING 1
)
SELECT badged.expect_rows((SELECT count(*) FROM updated), cardinality($1::text[]))`),

		insertConversationsSQL: newRowsSQL(`INSERT INTO badged.conversations_p` + suffix + `
       (partition_id, user_id, conversation_id, version, read_seq, last_seq, left_seq,
        category, level, marked_unread, unread, mentions, unread_set, mention_set, recalled_set,
        unread_block, mention_block, delivered_hour, unread_words, mention_words)
SELECT ` + fmt.Sprint(partition) + `, ` + conversationValues),

		updateConversationsSQL: newRowsSQL(`WITH updated AS (
    UPDATE badged.conversations_p` + suffix + ` AS c
    SET version = v.version, read_seq = v.read_seq, last_seq = v.last_seq,
        left_seq = v.left_seq, category = v.category, level = v.level,
        marked_unread = v.marked_unread, unread = v.unread, mentions = v.mentions,
        unread_set = v.unread_set, mention_set = v.mention_set, recalled_set = v.recalled_set,
        unread_block = v.unread_block, mention_block = v.mention_block,
        delivered_hour = v.delivered_hour, unread_words = v.unread_words, mention_words = v.mention_words
    FROM (SELECT ` + conversationValues + `)
      AS v (user_id, conversation_id, version, read_seq, last_seq, left_seq,
            category, level, marked_unread, unread, mentions, unread_set, mention_set, recalled_set,
            unread_block, mention_block, delivered_hour, unread_words, mention_words)
    WHERE (c.user_id, c.conversation_id) = (v.user_id, v.conversation_id)
    RETURNING 1
)
SELECT badged.expect_rows((SELECT count(*) FROM updated), cardinality($1::text[]))`),
	}
}

// rowsSQL writes rows that are arrays of columns. A statement for a single row,
// as most batches of a quiet partition have, takes its values instead: Postgres
// then needs a third of the time.
type rowsSQL struct{ many, one string }

// unnested matches an array of a column.
var unnested = regexp.MustCompile(`unnest\((\$\d+::\w+)\[\]\)`)

func newRowsSQL(many string) rowsSQL {
	one := unnested.ReplaceAllString(many, "$1")
	return rowsSQL{many, strings.ReplaceAll(one, `cardinality($1::text[])`, `1`)}
}

// only returns the value of the only row in a column of [addRare], nil if the
// column is empty.
func only[T any](column []T) any {
	if len(column) == 0 {
		return nil
	}
	return column[0]
}

// onlyBytes is only for a column of bytea.
func onlyBytes(column []string) any {
	if len(column) == 0 {
		return nil
	}
	return []byte(column[0])
}

// The arrays are unnested side by side in the select list: functions in a FROM
// clause would each be materialized first. Shorter arrays are padded with null.

// userValues are users in the layout of userColumns.
const userValues = `r.user_id, r.version, r.total, r.mentions, r.categories, nullif(r.claims, '')::jsonb
FROM (SELECT unnest($1::text[]) AS user_id, unnest($2::bigint[]) AS version, unnest($3::bigint[]) AS total,
             unnest($4::bigint[]) AS mentions, unnest($5::jsonb[]) AS categories, unnest($6::text[]) AS claims) AS r`

// UserColumnsSQL are the columns that ScanUsersInto reads.
const UserColumnsSQL = `user_id, version, total, mentions, categories::text, coalesce(claims::text, '')`

// conversationValues are conversations in the layout of conversationRows.
const conversationValues = `r.user_id, r.conversation_id, r.version, r.read_seq, r.last_seq, nullif(r.left_seq, -1),
       r.category, coalesce(r.level::badged.level, 'all'), coalesce(r.marked_unread, false),
       r.unread, coalesce(r.mentions, 0), r.unread_set::int8multirange,
       coalesce(r.mention_set::int8multirange, '{}'), coalesce(r.recalled_set::int8multirange, '{}'),
       nullif(r.unread_block, '')::bigint[], nullif(r.mention_block, '')::bigint[], r.delivered_hour,
       nullif(r.unread_words, ''), nullif(r.mention_words, '')
FROM (SELECT unnest($1::text[]) AS user_id, unnest($2::text[]) AS conversation_id, unnest($3::bigint[]) AS version,
             unnest($4::bigint[]) AS read_seq, unnest($5::bigint[]) AS last_seq, unnest($6::bigint[]) AS left_seq,
             unnest($7::text[]) AS category, unnest($8::text[]) AS level, unnest($9::boolean[]) AS marked_unread,
             unnest($10::bigint[]) AS unread, unnest($11::bigint[]) AS mentions, unnest($12::text[]) AS unread_set,
             unnest($13::text[]) AS mention_set, unnest($14::text[]) AS recalled_set,
             unnest($15::text[]) AS unread_block, unnest($16::text[]) AS mention_block,
             unnest($17::integer[]) AS delivered_hour,
             unnest($18::bytea[]) AS unread_words, unnest($19::bytea[]) AS mention_words) AS r`

// ConversationColumns are the columns that ScanConversationsInto reads, of
// table c.
const ConversationColumns = `c.user_id, c.conversation_id, c.version, c.read_seq, c.last_seq, coalesce(c.left_seq, -1),
       c.category, c.level::text, c.marked_unread, c.unread_set::text, c.mention_set::text, c.recalled_set::text,
       coalesce(c.unread_block::text, ''), coalesce(c.mention_block::text, ''), c.delivered_hour,
       coalesce(c.unread_words, ''), coalesce(c.mention_words, '')`

const buryDeadLetterSQL = `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, payload, reason)
VALUES ($1, $2::bigint::text::xid8, $3, $4, $5::text::json, $6)`

// IncarnationSQL identifies the running Postgres: its timeline, which a
// promotion and a point-in-time recovery change, and the start of its
// postmaster, without which no data directory is put back and no crash loses
// commits. It works on a primary only, for every role.
const IncarnationSQL = `left(pg_walfile_name(pg_current_wal_lsn()), 8) || '/' || extract(epoch FROM pg_postmaster_start_time())::text`

// ResetExpirySQL makes the next sweep look at all conversations of a partition
// again. Run it in a transaction that folds old events, or writes rows other
// than by folding: the rows may lie behind the progress of the sweep.
const ResetExpirySQL = `DELETE FROM badged.expiry_progress WHERE partition_id = $1`

// ScanUsers reads the result of LoadUsersSQL into users.
func ScanUsers(rows pgx.Rows, users map[string]*badge.User) error {
	return ScanUsersInto(rows, func(id string) *badge.User { return users[id] }, func(u *badge.User) { u.Stored, u.HasRow = u.Version, true })
}

// ScanUsersInto reads UserColumnsSQL into the users that of returns, skips
// those for which it returns nil, and calls read with each.
func ScanUsersInto(rows pgx.Rows, of func(id string) *badge.User, read func(*badge.User)) error {
	var id, categories, claims string
	var version, total, mentions int64
	_, err := pgx.ForEachRow(rows, []any{&id, &version, &total, &mentions, &categories, &claims}, func() error {
		u := of(id)
		if u == nil {
			return nil
		}
		u.Version, u.Total, u.Mentions = version, total, mentions
		var totals map[string]int64
		if err := json.Unmarshal([]byte(categories), &totals); err != nil {
			return fmt.Errorf("categories of user %q: %w", id, err)
		}
		u.Categories = badge.NewCategoryTotals(totals)
		var err error
		if u.Claims, err = badge.ParseClaims(claims); err != nil {
			return fmt.Errorf("claims of user %q: %w", id, err)
		}
		read(u)
		return nil
	})
	return err
}

// ScanConversations reads the result of LoadConversationsSQL or LoadUnreadSQL
// into users.
func ScanConversations(rows pgx.Rows, users map[string]*badge.User) error {
	return ScanConversationsInto(rows, func(id string) *badge.User { return users[id] }, func(_ *badge.User, c *badge.Conversation) { c.Stored = true })
}

// ScanConversationsInto reads ConversationColumns into the users that of
// returns, skips the rows for which it returns nil, and calls read with each.
func ScanConversationsInto(rows pgx.Rows, of func(userID string) *badge.User, read func(*badge.User, *badge.Conversation)) error {
	var userID, level, unread, mentions, recalled, unreadBlock, mentionBlock string
	var unreadWords, mentionWords []byte
	var c badge.Conversation
	_, err := pgx.ForEachRow(rows, []any{
		&userID, &c.ID, &c.Version, &c.ReadSeq, &c.LastSeq, &c.LeftSeq,
		&c.Category, &level, &c.Marked, &unread, &mentions, &recalled, &unreadBlock, &mentionBlock,
		&c.DeliveredHour, &unreadWords, &mentionWords,
	}, func() error {
		u := of(userID)
		if u == nil {
			return nil
		}
		loaded := c
		loaded.Level = events.Level(level)
		var err error
		if loaded.Recalled, err = badge.ParseRangeSet(recalled); err != nil {
			return fmt.Errorf("conversation %q of user %q: %w", c.ID, userID, err)
		}
		if loaded.Unread, err = badge.ParseBoundedSet(unread, unreadWords, unreadBlock); err != nil {
			return fmt.Errorf("conversation %q of user %q: %w", c.ID, userID, err)
		}
		if loaded.Mentions, err = badge.ParseBoundedSet(mentions, mentionWords, mentionBlock); err != nil {
			return fmt.Errorf("conversation %q of user %q: %w", c.ID, userID, err)
		}
		if before, ok := u.Conversations[c.ID]; ok {
			loaded.Weighed = before.Weighed
		}
		u.Conversations[c.ID] = &loaded
		read(u, &loaded)
		return nil
	})
	return err
}

// QueueWrites adds to batch the statements that write what changed in users
// since their rows were read or written. It returns roughly how many bytes
// they take on the wire.
func (t *Tables) QueueWrites(batch *pgx.Batch, users []*badge.User) int {
	var newUsers, knownUsers userColumns
	var newRows, knownRows conversationRows
	conversations := 0
	for _, u := range users {
		conversations += len(u.Changed)
	}
	knownUsers.reserve(len(users)) // most have a row
	knownRows.reserve(conversations)
	for _, u := range users {
		switch {
		case u.Version == u.Stored && !u.Claimed:
		case !u.HasRow:
			newUsers.add(u)
		default:
			knownUsers.add(u)
		}
		slices.SortFunc(u.Changed, func(a, b *badge.Conversation) int { return cmp.Compare(a.ID, b.ID) })
		for _, c := range u.Changed {
			if c.Stored {
				knownRows.add(u, c)
			} else {
				newRows.add(u, c)
			}
		}
	}
	const rest = 4096 // the statements, and what else a batch sends
	return newUsers.queue(batch, t.insertUsersSQL) + knownUsers.queue(batch, t.updateUsersSQL) +
		newRows.queue(batch, t.insertConversationsSQL) + knownRows.queue(batch, t.updateConversationsSQL) + rest
}

// userColumns are users as the arrays that userValues takes.
type userColumns struct {
	ids                        []string
	versions, totals, mentions []int64
	categories, claims         []string
}

// reserve makes room for n users.
func (a *userColumns) reserve(n int) {
	a.ids, a.categories = make([]string, 0, n), make([]string, 0, n)
	a.versions, a.totals, a.mentions = make([]int64, 0, n), make([]int64, 0, n), make([]int64, 0, n)
}

func (a *userColumns) add(u *badge.User) {
	a.claims = addRare(a.claims, len(a.ids), u.Claims.String(), "")
	a.ids = append(a.ids, u.ID)
	a.versions = append(a.versions, u.Version)
	a.totals = append(a.totals, u.Total)
	a.mentions = append(a.mentions, u.Mentions)
	a.categories = append(a.categories, u.Categories.String())
}

// queue adds a statement that takes the users to batch, and returns roughly
// how many bytes they take on the wire.
func (a *userColumns) queue(batch *pgx.Batch, sql rowsSQL) int {
	switch len(a.ids) {
	case 0:
		return 0
	case 1:
		batch.Queue(sql.one, a.ids[0], a.versions[0], a.totals[0], a.mentions[0], a.categories[0], only(a.claims))
		return arraysBytes
	}
	const numbers, jsonb = 3 * (4 + 8), 1
	bytes := arraysBytes + pgwire.ArrayBytes(a.ids) + pgwire.ArrayBytes(a.categories) + pgwire.ArrayBytes(a.claims) + (numbers+jsonb)*len(a.ids)
	batch.Queue(sql.many, pgwire.Leading{Array: a.ids, Bytes: bytes}, a.versions, a.totals, a.mentions, a.categories, a.claims)
	return bytes
}

// arraysBytes bounds the bytes that the arrays of a statement take without
// their elements.
const arraysBytes = 512

// conversationRows are conversations as the arrays that conversationValues
// takes.
type conversationRows struct {
	users, ids                             []string
	versions, readSeqs, lastSeqs, leftSeqs []int64
	categories, levels                     []string
	marked                                 []bool
	unread, mentions                       []int64
	unreadSets, mentionSets, recalledSets  []string
	unreadBlocks, mentionBlocks            []string
	deliveredHours                         []int32
	unreadWords, mentionWords              []string
}

// reserve makes room for n conversations in the columns that every row fills.
func (a *conversationRows) reserve(n int) {
	for _, column := range []*[]string{&a.users, &a.ids, &a.categories, &a.unreadSets} {
		*column = make([]string, 0, n)
	}
	for _, column := range []*[]int64{&a.versions, &a.readSeqs, &a.lastSeqs, &a.unread} {
		*column = make([]int64, 0, n)
	}
	a.deliveredHours = make([]int32, 0, n)
}

func (a *conversationRows) add(u *badge.User, c *badge.Conversation) {
	n := len(a.users)
	a.users = append(a.users, u.ID)
	a.ids = append(a.ids, c.ID)
	a.versions = append(a.versions, c.Version)
	a.readSeqs = append(a.readSeqs, c.ReadSeq)
	a.lastSeqs = append(a.lastSeqs, c.LastSeq)
	a.leftSeqs = addRare(a.leftSeqs, n, c.LeftSeq, badge.Never)
	a.categories = append(a.categories, c.Category)
	a.levels = addRare(a.levels, n, string(c.Level), string(events.LevelAll))
	a.marked = addRare(a.marked, n, c.Marked, false)
	a.unread = append(a.unread, c.Unread.Len())
	a.mentions = addRare(a.mentions, n, c.Mentions.Len(), 0)
	a.unreadSets = append(a.unreadSets, c.Unread.Newest())
	a.mentionSets = addRare(a.mentionSets, n, c.Mentions.Newest(), badge.EmptySet)
	a.recalledSets = addRare(a.recalledSets, n, c.Recalled.String(), badge.EmptySet)
	a.unreadBlocks = addRare(a.unreadBlocks, n, c.Unread.BlockText(), "")
	a.mentionBlocks = addRare(a.mentionBlocks, n, c.Mentions.BlockText(), "")
	a.unreadWords = addRare(a.unreadWords, n, c.Unread.Words(), "")
	a.mentionWords = addRare(a.mentionWords, n, c.Mentions.Words(), "")
	a.deliveredHours = append(a.deliveredHours, int32(c.DeliveredHour)) //nolint:gosec // HourOf keeps it below
}

// addRare adds value for row n to a column in which most rows have usual. The
// column ends at the last other value.
func addRare[T comparable](column []T, n int, value, usual T) []T {
	if value == usual {
		return column
	}
	for len(column) < n {
		column = append(column, usual)
	}
	return append(column, value)
}

// queue is userColumns.queue for conversations.
func (a *conversationRows) queue(batch *pgx.Batch, sql rowsSQL) int {
	switch len(a.users) {
	case 0:
		return 0
	case 1:
		batch.Queue(sql.one, a.users[0], a.ids[0], a.versions[0], a.readSeqs[0], a.lastSeqs[0], only(a.leftSeqs),
			a.categories[0], only(a.levels), only(a.marked), a.unread[0], only(a.mentions), a.unreadSets[0], only(a.mentionSets),
			only(a.recalledSets), only(a.unreadBlocks), only(a.mentionBlocks), a.deliveredHours[0],
			onlyBytes(a.unreadWords), onlyBytes(a.mentionWords))
		return arraysBytes + len(a.unreadSets[0])
	}
	bytes := arraysBytes + (4+4)*len(a.deliveredHours) + (4+1)*len(a.marked) +
		(4+8)*(len(a.versions)+len(a.readSeqs)+len(a.lastSeqs)+len(a.leftSeqs)+len(a.unread)+len(a.mentions))
	for _, texts := range [][]string{
		a.users, a.ids, a.categories, a.levels,
		a.unreadSets, a.mentionSets, a.recalledSets, a.unreadBlocks, a.mentionBlocks,
		a.unreadWords, a.mentionWords,
	} {
		bytes += pgwire.ArrayBytes(texts)
	}
	batch.Queue(sql.many, pgwire.Leading{Array: a.users, Bytes: bytes}, a.ids, a.versions, a.readSeqs, a.lastSeqs, a.leftSeqs,
		a.categories, a.levels, a.marked, a.unread, a.mentions, a.unreadSets, a.mentionSets, a.recalledSets, a.unreadBlocks, a.mentionBlocks,
		a.deliveredHours, pgwire.Bytes(a.unreadWords), pgwire.Bytes(a.mentionWords))
	return bytes
}

// ClientUpdates returns what to publish about users: what changed since their
// rows were read or written. It skips users without subscribers, as most are:
// their apps are closed.
func ClientUpdates(users []*badge.User, partition int, epoch string, hasSubscribers func(pubsub.User) bool) []pubsub.Update {
	var updates []pubsub.Update
	for _, u := range users {
		if u.Version == u.Stored || !hasSubscribers(pubsub.User{ID: u.ID, Partition: partition}) {
			continue
		}
		update := pubsub.Update{
			Badge: pubsub.Badge{
				UserID: u.ID, Epoch: epoch, Version: u.Version,
				// A copy: the user's own changes while this is published.
				Total: u.Total, Mentions: u.Mentions, Categories: u.Categories.ByName(),
			},
			Partition:   partition,
			BaseVersion: u.Stored,
			AppendedAt:  u.ChangedAt,
		}
		update.Conversations = make([]pubsub.Conversation, 0, len(u.Changed))
		for _, c := range u.Changed {
			if c.Version > u.Stored {
				update.Conversations = append(update.Conversations, Public(c))
			}
		}
		slices.SortFunc(update.Conversations, func(a, b pubsub.Conversation) int {
			return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.ConversationID, b.ConversationID))
		})
		updates = append(updates, update)
	}
	return updates
}

// Public returns a conversation as clients see it.
func Public(c *badge.Conversation) pubsub.Conversation {
	return pubsub.Conversation{
		ConversationID: c.ID,
		Unread:         c.Unread.Len(),
		Mentions:       c.Mentions.Len(),
		FirstUnreadSeq: c.Unread.Min(),
		ReadSeq:        c.ReadSeq,
		LastSeq:        c.LastSeq,
		Level:          string(c.Level),
		Category:       c.Category,
		MarkedUnread:   c.Marked,
		Left:           c.ShowsLeft(),
		Version:        c.Version,
	}
}

// Sorted returns the values of m in the order of their keys.
func Sorted[V any](m map[string]V) []V {
	type entry struct {
		key   string
		value V
	}
	entries := make([]entry, 0, len(m))
	for k, v := range m {
		entries = append(entries, entry{k, v})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	values := make([]V, len(entries))
	for i := range entries {
		values[i] = entries[i].value
	}
	return values
}

// moveSQL is the fence: it moves the position of a partition from ($1, $2) to
// ($3, $4), with the pending transactions $5. It fails where the position is
// elsewhere: another owner was faster.
func moveSQL(partition int) string {
	return `WITH moved AS (
    UPDATE badged.` + events.Topic(partition) + `_offsets
    SET last_processed_transaction_id = $3::bigint::text::xid8, offset_acked = $4, pending = $5::bigint[]::text[]::xid8[]
    WHERE consumer_group = '` + events.ProjectorGroup + `' AND last_processed_transaction_id = $1::bigint::text::xid8 AND offset_acked = $2
    RETURNING 1
)
SELECT badged.require(EXISTS (SELECT FROM moved), '` + codeFenced + `')`
}

// moveAppendedSQL is the fence of a transaction that has appended to the log
// of a partition what it folds. It moves the position from ($1, $2) to the last
// row of the transaction, and returns that with the pending transactions. It
// fails if the log has any other row that is not folded. pending says whether
// transactions were pending at ($1, $2).
//
// Its snapshot is taken after the id of the transaction. The snapshot lists the
// open transactions below xmax, the last that has completed plus one; any from
// there up to the own id may be open too.
func moveAppendedSQL(partition int, pending bool) string {
	log := `badged.` + events.Topic(partition)
	still, late := "", ""
	if pending {
		still = `SELECT x FROM unnest(o.pending) AS x WHERE NOT pg_visible_in_snapshot(x, pg_current_snapshot())
            UNION
            `
		late = `
      AND NOT EXISTS (SELECT FROM ` + log + ` WHERE transaction_id = ANY (o.pending))`
	}
	return `WITH moved AS (
    UPDATE ` + log + `_offsets AS o
    SET last_processed_transaction_id = pg_current_xact_id(),
        offset_acked = (SELECT max("offset") FROM ` + log + ` WHERE transaction_id = pg_current_xact_id()),
        pending = ARRAY(
            ` + still + `SELECT x FROM pg_snapshot_xip(pg_current_snapshot()) AS x WHERE x > o.last_processed_transaction_id AND x < pg_current_xact_id()
            UNION
            SELECT x::text::xid8 FROM generate_series(pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_xact_id()::text::bigint - 1) AS x
            ORDER BY 1)
    WHERE o.consumer_group = '` + events.ProjectorGroup + `' AND o.last_processed_transaction_id = $1::bigint::text::xid8 AND o.offset_acked = $2
      AND NOT EXISTS (SELECT FROM ` + log + `
                      WHERE (transaction_id, "offset") > ($1::bigint::text::xid8, $2::bigint) AND transaction_id >= $1::bigint::text::xid8
                        AND transaction_id <> pg_current_xact_id())` + late + `
    RETURNING last_processed_transaction_id::text::bigint AS id, offset_acked, pending::text[]::bigint[] AS pending
)
SELECT badged.require(EXISTS (SELECT FROM moved), '` + codeFenced + `'), id, offset_acked, pending
FROM (SELECT) AS one LEFT JOIN moved ON true`
}

// moveLateSQL moves the events of partition $1 at the places ($2, $3) right
// behind the position ($4, $5), in their order.
const moveLateSQL = `SELECT badged.move_late($1, $2, $3, $4, $5)`
