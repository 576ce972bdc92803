package projector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

// tables are the statements on the tables of one partition.
type tables struct {
	partition int

	moveSQL                string
	standingSQL            string
	loadUsersSQL           string
	loadConversationsSQL   string
	loadUnreadSQL          string
	insertUsersSQL         string
	updateUsersSQL         string
	insertConversationsSQL string
	updateConversationsSQL string
}

func newTables(partition int) *tables { return tablesNamed(partition, fmt.Sprintf("%02d", partition)) }

// tablesNamed returns the statements on tables of a partition whose names end
// with nn.
func tablesNamed(partition int, nn string) *tables {
	return &tables{
		partition: partition,

		// The fence.
		moveSQL: events.MoveSQL(partition),

		// A statement of its own, behind the fence: one that had to wait for the
		// row of the position would see the rest as it was before.
		standingSQL: fmt.Sprintf(`SELECT epoch, revision,
       (SELECT max(generation) FROM badged.dedup_generations WHERE partition_id = %[1]d)
FROM badged.partitions WHERE partition_id = %[1]d`, partition),

		loadUsersSQL: `SELECT user_id, version, total, mentions, categories::text
FROM badged.users_p` + nn + `
WHERE user_id = ANY ($1::text[])`,

		loadConversationsSQL: `SELECT ` + conversationColumns + `
FROM unnest($1::text[], $2::text[]) AS k (user_id, conversation_id)
JOIN badged.conversations_p` + nn + ` AS c USING (user_id, conversation_id)`,

		// What user.read_all can have an effect on.
		loadUnreadSQL: `SELECT ` + conversationColumns + `
FROM badged.conversations_p` + nn + ` AS c
WHERE user_id = ANY ($1::text[]) AND (read_seq < last_seq OR marked_unread)`,

		insertUsersSQL: `INSERT INTO badged.users_p` + nn + `
       (partition_id, user_id, version, total, mentions, categories)
SELECT ` + fmt.Sprint(partition) + `, ` + userValues,

		// That the rows are all there is made sure of.
		updateUsersSQL: `WITH updated AS (
    UPDATE badged.users_p` + nn + ` AS u
    SET version = v.version, total = v.total, mentions = v.mentions, categories = v.categories
    FROM (SELECT ` + userValues + `) AS v (user_id, version, total, mentions, categories)
    WHERE u.user_id = v.user_id
    RETURNING 1
)
SELECT badged.expect_rows((SELECT count(*) FROM updated), cardinality($1::text[]))`,

		insertConversationsSQL: `INSERT INTO badged.conversations_p` + nn + `
       (partition_id, user_id, conversation_id, version, read_seq, last_seq, left_seq,
        category, level, marked_unread, unread, mentions, unread_set, mention_set, recalled_set,
        unread_block, mention_block, delivered_hour)
SELECT ` + fmt.Sprint(partition) + `, ` + conversationValues,

		updateConversationsSQL: `WITH updated AS (
    UPDATE badged.conversations_p` + nn + ` AS c
    SET version = v.version, read_seq = v.read_seq, last_seq = v.last_seq,
        left_seq = v.left_seq, category = v.category, level = v.level,
        marked_unread = v.marked_unread, unread = v.unread, mentions = v.mentions,
        unread_set = v.unread_set, mention_set = v.mention_set, recalled_set = v.recalled_set,
        unread_block = v.unread_block, mention_block = v.mention_block,
        delivered_hour = v.delivered_hour
    FROM (SELECT ` + conversationValues + `)
      AS v (user_id, conversation_id, version, read_seq, last_seq, left_seq,
            category, level, marked_unread, unread, mentions, unread_set, mention_set, recalled_set,
            unread_block, mention_block, delivered_hour)
    WHERE (c.user_id, c.conversation_id) = (v.user_id, v.conversation_id)
    RETURNING 1
)
SELECT badged.expect_rows((SELECT count(*) FROM updated), cardinality($1::text[]))`,
	}
}

// The arrays are unnested side by side in the list of what is selected: as the
// functions of a FROM clause each would be put aside as a whole first. Where one
// is shorter, null follows.

// userValues are users as userColumns has them.
const userValues = `r.user_id, r.version, r.total, r.mentions, r.categories
FROM (SELECT unnest($1::text[]) AS user_id, unnest($2::bigint[]) AS version, unnest($3::bigint[]) AS total,
             unnest($4::bigint[]) AS mentions, unnest($5::jsonb[]) AS categories) AS r`

// conversationValues are conversations as conversationRows has them.
const conversationValues = `r.user_id, r.conversation_id, r.version, r.read_seq, r.last_seq, nullif(r.left_seq, -1),
       r.category, coalesce(r.level::badged.level, 'all'), coalesce(r.marked_unread, false),
       r.unread, coalesce(r.mentions, 0), r.unread_set::int8multirange,
       coalesce(r.mention_set::int8multirange, '{}'), coalesce(r.recalled_set::int8multirange, '{}'),
       nullif(r.unread_block, '')::bigint[], nullif(r.mention_block, '')::bigint[], r.delivered_hour
FROM (SELECT unnest($1::text[]) AS user_id, unnest($2::text[]) AS conversation_id, unnest($3::bigint[]) AS version,
             unnest($4::bigint[]) AS read_seq, unnest($5::bigint[]) AS last_seq, unnest($6::bigint[]) AS left_seq,
             unnest($7::text[]) AS category, unnest($8::text[]) AS level, unnest($9::boolean[]) AS marked_unread,
             unnest($10::bigint[]) AS unread, unnest($11::bigint[]) AS mentions, unnest($12::text[]) AS unread_set,
             unnest($13::text[]) AS mention_set, unnest($14::text[]) AS recalled_set,
             unnest($15::text[]) AS unread_block, unnest($16::text[]) AS mention_block,
             unnest($17::integer[]) AS delivered_hour) AS r`

const conversationColumns = `c.user_id, c.conversation_id, c.version, c.read_seq, c.last_seq, coalesce(c.left_seq, -1),
       c.category, c.level::text, c.marked_unread, c.unread_set::text, c.mention_set::text, c.recalled_set::text,
       coalesce(c.unread_block::text, ''), coalesce(c.mention_block::text, ''), c.delivered_hour`

const buryDeadLetterSQL = `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, payload, reason)
VALUES ($1, $2::bigint::text::xid8, $3, $4, $5::text::json, $6)`

// scanUsers reads the result of loadUsersSQL into the users that it is about.
func scanUsers(rows pgx.Rows, users map[string]*user) error {
	return scanUsersInto(rows, func(id string) *user { return users[id] }, func(u *user) { u.stored = u.version })
}

// scanUsersInto reads users into what of returns, leaves out those of whom that
// is nil, and calls read with each.
func scanUsersInto(rows pgx.Rows, of func(id string) *user, read func(*user)) error {
	var id, categories string
	var version, total, mentions int64
	_, err := pgx.ForEachRow(rows, []any{&id, &version, &total, &mentions, &categories}, func() error {
		u := of(id)
		if u == nil {
			return nil
		}
		u.version, u.total, u.mentions = version, total, mentions
		var totals map[string]int64
		if err := json.Unmarshal([]byte(categories), &totals); err != nil {
			return fmt.Errorf("categories of user %q: %w", id, err)
		}
		u.categories = totalsOf(totals)
		read(u)
		return nil
	})
	return err
}

// scanConversations reads the result of loadConversationsSQL or loadUnreadSQL
// into the users that it is about.
func scanConversations(rows pgx.Rows, users map[string]*user) error {
	return scanConversationsInto(rows, func(id string) *user { return users[id] }, func(_ *user, c *conversation) { c.stored = true })
}

// scanConversationsInto reads conversationColumns into what of returns, leaves out
// those of users of whom that is nil, and calls read with each.
func scanConversationsInto(rows pgx.Rows, of func(userID string) *user, read func(*user, *conversation)) error {
	var userID, level, unread, mentions, recalled, unreadBlock, mentionBlock string
	var c conversation
	_, err := pgx.ForEachRow(rows, []any{
		&userID, &c.id, &c.version, &c.readSeq, &c.lastSeq, &c.leftSeq,
		&c.category, &level, &c.marked, &unread, &mentions, &recalled, &unreadBlock, &mentionBlock,
		&c.deliveredHour,
	}, func() error {
		u := of(userID)
		if u == nil {
			return nil
		}
		loaded := c
		loaded.level = events.Level(level)
		for _, set := range []struct {
			into    *rangeSet
			literal string
		}{{&loaded.unread.rangeSet, unread}, {&loaded.mentions.rangeSet, mentions}, {&loaded.recalled, recalled}} {
			var err error
			if *set.into, err = parseRangeSet(set.literal); err != nil {
				return fmt.Errorf("conversation %q of user %q: %w", c.id, userID, err)
			}
		}
		var err error
		if loaded.unread.block, err = parseBlock(unreadBlock); err != nil {
			return fmt.Errorf("conversation %q of user %q: %w", c.id, userID, err)
		}
		if loaded.mentions.block, err = parseBlock(mentionBlock); err != nil {
			return fmt.Errorf("conversation %q of user %q: %w", c.id, userID, err)
		}
		if before, ok := u.conversations[c.id]; ok {
			loaded.weighed = before.weighed
		}
		u.conversations[c.id] = &loaded
		read(u, &loaded)
		return nil
	})
	return err
}

// queueWrites adds the statements to batch that write what has changed in
// users since their rows were read or written. It returns about what that takes
// on its way to Postgres, in bytes.
func (t *tables) queueWrites(batch *pgx.Batch, users []*user) int {
	var newUsers, knownUsers userColumns
	var newRows, knownRows conversationRows
	conversations := 0
	for _, u := range users {
		conversations += len(u.changed)
	}
	knownUsers.reserve(len(users)) // as most are
	knownRows.reserve(conversations)
	for _, u := range users {
		switch {
		case u.version == u.stored:
		case u.stored == 0:
			newUsers.add(u)
		default:
			knownUsers.add(u)
		}
		slices.SortFunc(u.changed, func(a, b *conversation) int { return cmp.Compare(a.id, b.id) })
		for _, c := range u.changed {
			if c.stored {
				knownRows.add(u, c)
			} else {
				newRows.add(u, c)
			}
		}
	}
	const rest = 4096 // of the statements, and of what else a batch sends
	return newUsers.queue(batch, t.insertUsersSQL) + knownUsers.queue(batch, t.updateUsersSQL) +
		newRows.queue(batch, t.insertConversationsSQL) + knownRows.queue(batch, t.updateConversationsSQL) + rest
}

// userColumns are users as the arrays that userValues takes.
type userColumns struct {
	ids                        []string
	versions, totals, mentions []int64
	categories                 []string
}

// reserve makes room for n users.
func (a *userColumns) reserve(n int) {
	a.ids, a.categories = make([]string, 0, n), make([]string, 0, n)
	a.versions, a.totals, a.mentions = make([]int64, 0, n), make([]int64, 0, n), make([]int64, 0, n)
}

func (a *userColumns) add(u *user) {
	a.ids = append(a.ids, u.id)
	a.versions = append(a.versions, u.version)
	a.totals = append(a.totals, u.total)
	a.mentions = append(a.mentions, u.mentions)
	a.categories = append(a.categories, u.categories.String())
}

// queue adds a statement that takes the users to batch, and returns about what
// they take on their way to Postgres, in bytes.
func (a *userColumns) queue(batch *pgx.Batch, sql string) int {
	if len(a.ids) == 0 {
		return 0
	}
	const numbers, jsonb = 3 * (4 + 8), 1
	bytes := arraysBytes + events.ArrayBytes(a.ids) + events.ArrayBytes(a.categories) + (numbers+jsonb)*len(a.ids)
	batch.Queue(sql, events.Leading{Array: a.ids, Bytes: bytes}, a.versions, a.totals, a.mentions, a.categories)
	return bytes
}

// arraysBytes is more than what the arrays of a statement take without their
// elements.
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
}

// reserve makes room for n conversations, in the columns that all have.
func (a *conversationRows) reserve(n int) {
	for _, column := range []*[]string{&a.users, &a.ids, &a.categories, &a.unreadSets} {
		*column = make([]string, 0, n)
	}
	for _, column := range []*[]int64{&a.versions, &a.readSeqs, &a.lastSeqs, &a.unread} {
		*column = make([]int64, 0, n)
	}
	a.deliveredHours = make([]int32, 0, n)
}

func (a *conversationRows) add(u *user, c *conversation) {
	n := len(a.users)
	a.users = append(a.users, u.id)
	a.ids = append(a.ids, c.id)
	a.versions = append(a.versions, c.version)
	a.readSeqs = append(a.readSeqs, c.readSeq)
	a.lastSeqs = append(a.lastSeqs, c.lastSeq)
	a.leftSeqs = addRare(a.leftSeqs, n, c.leftSeq, never)
	a.categories = append(a.categories, c.category)
	a.levels = addRare(a.levels, n, string(c.level), string(events.LevelAll))
	a.marked = addRare(a.marked, n, c.marked, false)
	a.unread = append(a.unread, c.unread.len())
	a.mentions = addRare(a.mentions, n, c.mentions.len(), 0)
	a.unreadSets = append(a.unreadSets, c.unread.String())
	a.mentionSets = addRare(a.mentionSets, n, c.mentions.String(), emptySet)
	a.recalledSets = addRare(a.recalledSets, n, c.recalled.String(), emptySet)
	a.unreadBlocks = addRare(a.unreadBlocks, n, c.unread.block.String(), "")
	a.mentionBlocks = addRare(a.mentionBlocks, n, c.mentions.block.String(), "")
	a.deliveredHours = append(a.deliveredHours, int32(c.deliveredHour)) //nolint:gosec // hourOf keeps it below
}

// addRare adds value for row n to a column in which most rows have usual, which
// the rows after the last other value go without.
func addRare[T comparable](column []T, n int, value, usual T) []T {
	if value == usual {
		return column
	}
	for len(column) < n {
		column = append(column, usual)
	}
	return append(column, value)
}

// queue does for conversations what that of users does for these.
func (a *conversationRows) queue(batch *pgx.Batch, sql string) int {
	if len(a.users) == 0 {
		return 0
	}
	bytes := arraysBytes + (4+4)*len(a.deliveredHours) + (4+1)*len(a.marked) +
		(4+8)*(len(a.versions)+len(a.readSeqs)+len(a.lastSeqs)+len(a.leftSeqs)+len(a.unread)+len(a.mentions))
	for _, texts := range [][]string{
		a.users, a.ids, a.categories, a.levels,
		a.unreadSets, a.mentionSets, a.recalledSets, a.unreadBlocks, a.mentionBlocks,
	} {
		bytes += events.ArrayBytes(texts)
	}
	batch.Queue(sql, events.Leading{Array: a.users, Bytes: bytes}, a.ids, a.versions, a.readSeqs, a.lastSeqs, a.leftSeqs,
		a.categories, a.levels, a.marked, a.unread, a.mentions, a.unreadSets, a.mentionSets, a.recalledSets, a.unreadBlocks, a.mentionBlocks,
		a.deliveredHours)
	return bytes
}

// updatesOf returns what clients must be told of users since their rows were
// read or written. Of most users nobody hears, as their apps are closed.
func updatesOf(users []*user, partition int, epoch string, heard func(pubsub.User) bool) []pubsub.Update {
	var updates []pubsub.Update
	for _, u := range users {
		if u.version == u.stored || !heard(pubsub.User{ID: u.id, Partition: partition}) {
			continue
		}
		update := pubsub.Update{
			Badge: pubsub.Badge{
				UserID: u.id, Epoch: epoch, Version: u.version,
				// The user's own goes on changing while this is on its way.
				Total: u.total, Mentions: u.mentions, Categories: u.categories.byName(),
			},
			Partition:   partition,
			BaseVersion: u.stored,
		}
		update.Conversations = make([]pubsub.Conversation, 0, len(u.changed))
		for _, c := range u.changed {
			if c.version > u.stored {
				update.Conversations = append(update.Conversations, c.public())
			}
		}
		slices.SortFunc(update.Conversations, func(a, b pubsub.Conversation) int {
			return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.ConversationID, b.ConversationID))
		})
		updates = append(updates, update)
	}
	return updates
}

// public returns c as clients see it.
func (c *conversation) public() pubsub.Conversation {
	return pubsub.Conversation{
		ConversationID: c.id,
		Unread:         c.unread.len(),
		Mentions:       c.mentions.len(),
		FirstUnreadSeq: c.unread.min(),
		ReadSeq:        c.readSeq,
		LastSeq:        c.lastSeq,
		Level:          string(c.level),
		Category:       c.category,
		MarkedUnread:   c.marked,
		Version:        c.version,
	}
}

// sorted returns the values of m in the order of their keys.
func sorted[V any](m map[string]V) []V {
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
