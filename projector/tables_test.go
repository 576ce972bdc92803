package projector

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgwire"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
	"github.com/badged/badged/pubsub"
)

// sparse is a distance of seqs that no two in a word have.
const sparse = 100

// Through the real log and the real tables: whatever the history, however it
// is cut into transactions, batches and generations of keys, the tables say
// what the model says, with the versions of folding the log again one by one,
// and so does every answer of the reader. In the end the sums hold for
// everybody.
func TestTablesAgreeWithTheModel(t *testing.T) {
	d := newDatabase(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++ // a database is used for all histories, each with users of its own
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)}
		history := drawHistory(rt, every, users)
		for i := range history {
			history[i].Source = fmt.Sprint("history ", n)
		}
		start := d.positions(t)
		d.appendAndFold(t, rt, history)

		for _, id := range users {
			p := events.PartitionOf(id, partitions)
			truth := model{events: history, generations: d.generationsOf(t, history, p, start[p])}
			if diff := cmp.Diff(truth.describe(id), d.describe(t, id)); diff != "" {
				rt.Fatalf("after\n%sin generations %v the tables of %s are (-want +got):\n%s", story(history), truth.generations, id, diff)
			}
			want := d.replay(t, p, start[p]).rows[id]
			if want == nil {
				want = badge.NewUser(id)
			}
			if diff := cmp.Diff(versionsOf(want), d.versions(t, id)); diff != "" {
				rt.Fatalf("after\n%sin generations %v the versions of %s are (-one by one +got):\n%s", story(history), truth.generations, id, diff)
			}
			if diff := d.compareAnswers(t, rt, want); diff != "" {
				rt.Fatalf("after\n%sthe reader says of %s (-want +got):\n%s", story(history), id, diff)
			}
		}
	})
	d.checkSums(t)
}

// Seqs at the end of their range, and a room that is never read and whose seqs
// are not dense: the sets come back from the tables as they were.
func TestUnusualSetsThroughTheTables(t *testing.T) {
	ann := userIn(0, 0)
	var far []events.Event
	for i := range int64(badge.MaxRanges + 10) {
		e := deliver("sparse", 1+sparse*i, ann)
		if i%3 == 0 {
			e.Data.MentionedUserIDs = e.Data.UserIDs
		}
		far = append(far, e)
	}
	var holes []events.Event
	for i := range int64(4 * badge.MaxRanges) {
		e := deliver("holes", 1+3*i/2, ann)
		if i%3 == 0 {
			e.Data.MentionedUserIDs = e.Data.UserIDs
		}
		holes = append(holes, e)
	}
	last := int64(math.MaxInt64)
	for name, history := range map[string][]events.Event{
		"the greatest seqs": {
			deliver("c", last, ann), deliver("c", last-2, ann), deliver("c", last-1, ann),
			event("recall", events.MessageRecalled, "c", func(d *events.Data) { d.Seq = last - 1 }, ann),
			event("read", events.ConversationRead, "c", upTo(last-2), ann),
		},
		"read to the end": {deliver("c", last, ann), event("read", events.ConversationRead, "c", upTo(last), ann), deliver("c", 1, ann)},
		"many holes": append(slices.Clone(holes),
			event("read", events.ConversationRead, "holes", upTo(20), ann),
			event("recall", events.MessageRecalled, "holes", func(d *events.Data) { d.Seq = 25 }, ann), deliver("holes", 24, ann)),
		"too many ranges": append(slices.Clone(far),
			event("recall", events.MessageRecalled, "sparse", func(d *events.Data) { d.Seq = 1 }, ann)),
		"too many ranges, read in part": append(slices.Clone(far),
			event("read", events.ConversationRead, "sparse", upTo(5*sparse), ann)),
		"too many ranges, read until exact": append(slices.Clone(far),
			event("read", events.ConversationRead, "sparse", upTo(1000*sparse+1), ann)),
	} {
		t.Run(name, func(t *testing.T) {
			d, single := newDatabase(t), newMemory()
			for i := range history {
				single.commit(t, history[i:i+1])
			}
			d.append(t, history...)
			for _, p := range d.projector.partitions {
				p.limit = 100
			}
			d.fold(t)
			if diff := cmp.Diff(single.describe(ann), d.describe(t, ann)); diff != "" {
				t.Errorf("the tables are (-one by one +got):\n%s", diff)
			}
			if diff := cmp.Diff(versionsOf(single.rows[ann]), d.versions(t, ann)); diff != "" {
				t.Errorf("the versions are (-one by one +got):\n%s", diff)
			}
		})
	}
}

// appendAndFold appends a history in transactions of any size, and folds in
// between and afterwards, in batches of any size, some of which begin a
// generation of keys, and with disturbances.
func (d *database) appendAndFold(t *testing.T, rt *rapid.T, history []events.Event) {
	t.Helper()
	for rest := history; len(rest) > 0; {
		size := rapid.IntRange(1, len(rest)).Draw(rt, "transaction")
		d.append(t, rest[:size]...)
		rest = rest[size:]
		if rapid.Bool().Draw(rt, "fold") {
			p := rapid.SampledFrom(d.projector.partitions).Draw(rt, "partition")
			if rapid.Bool().Draw(rt, "rotate") {
				d.age(t, p)
			}
			d.disturb(t, rt, p)
			stepAgain(t, p, rapid.IntRange(1, 5).Draw(rt, "batch"))
		}
	}
	for _, p := range d.projector.partitions {
		p.limit = rapid.IntRange(1, 10).Draw(rt, "batch")
	}
	d.fold(t)
}

// describe says of the rows of a user what model.describe says of its events.
func (d *database) describe(t *testing.T, id string) string {
	t.Helper()
	total, mentions, categories := 0, 0, map[string]int{}
	rows, err := d.pool.Query(t.Context(), `SELECT total, mentions, categories FROM badged.users WHERE user_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		if err := rows.Scan(&total, &mentions, &categories); err != nil {
			t.Fatal(err)
		}
	}
	rows, err = d.pool.Query(t.Context(), `SELECT conversation_id, unread, mentions, `+badges.FirstUnreadSQL+`,
       read_seq, last_seq, level::text, category, marked_unread,
       coalesce(left_seq >= last_seq, false) AND (last_seq > 0 OR read_seq > 0 OR level <> 'all')
FROM badged.conversations WHERE user_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		var conversation, level, category string
		var unread, mentions int
		var first, read, last int64
		var marked, left bool
		if err := rows.Scan(&conversation, &unread, &mentions, &first, &read, &last, &level, &category, &marked, &left); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, conversationLine(conversation, unread, mentions, first, read, last, events.Level(level), category, marked, left))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return describe(total, mentions, fmt.Sprint(categories), lines)
}

// versions returns the versions of a user, under "", and of its conversations,
// without zeros.
func (d *database) versions(t *testing.T, id string) map[string]int64 {
	t.Helper()
	rows, err := d.pool.Query(t.Context(), `SELECT '', version FROM badged.users WHERE user_id = $1
UNION ALL
SELECT conversation_id, version FROM badged.conversations WHERE user_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]int64{}
	for rows.Next() {
		var name string
		var version int64
		if err := rows.Scan(&name, &version); err != nil {
			t.Fatal(err)
		}
		versions[name] = version
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return withoutZeros(versions)
}

// versionsOf returns the same of a state in memory.
func versionsOf(u *badge.User) map[string]int64 {
	versions := map[string]int64{"": u.Version}
	for id, c := range u.Conversations {
		versions[id] = c.Version
	}
	return withoutZeros(versions)
}

func withoutZeros(versions map[string]int64) map[string]int64 {
	maps.DeleteFunc(versions, func(_ string, v int64) bool { return v == 0 })
	return versions
}

// listed returns the conversations of a user that pass, as clients see them,
// most recently changed first.
func listed(u *badge.User, pass func(*badge.Conversation) bool) []pubsub.Conversation {
	list := []pubsub.Conversation{}
	for _, c := range store.Sorted(u.Conversations) {
		if c.Version > 0 && pass(c) {
			list = append(list, store.Public(c))
		}
	}
	slices.SortStableFunc(list, func(a, b pubsub.Conversation) int { return int(b.Version - a.Version) })
	return list
}

// compareAnswers compares what the reader says of a user with its state, and
// returns the difference.
func (d *database) compareAnswers(t *testing.T, rt *rapid.T, want *badge.User) string {
	t.Helper()
	totals := pubsub.Badge{
		UserID: want.ID, Epoch: d.badge(t, want.ID).Epoch, Version: want.Version,
		Total: want.Total, Mentions: want.Mentions, Categories: want.Categories.ByName(),
	}
	since := rapid.Int64Range(0, want.Version).Draw(rt, "since")
	snapshot, err := d.reader.Snapshot(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	changes := d.changes(t, want.ID, since)
	limit := rapid.IntRange(1, 3).Draw(rt, "page")
	unread := func(c *badge.Conversation) bool { return !c.Left() && (c.Unread.Len() > 0 || c.Marked) }
	known := func(c *badge.Conversation) bool { // or else as good as none
		return !c.Left() && (c.LastSeq > 0 || c.ReadSeq > 0 || c.Marked || c.Level != events.LevelAll)
	}
	shows := func(c *badge.Conversation) bool { return unread(c) || !c.Left() && c.Level != events.LevelAll }
	return strings.Join(slices.DeleteFunc([]string{
		cmp.Diff(totals, d.badge(t, want.ID)),
		cmp.Diff(pubsub.Snapshot{Badge: totals, Conversations: listed(want, shows), Whole: true}, snapshot),
		cmp.Diff(pubsub.Snapshot{
			Badge:         totals,
			Conversations: listed(want, func(c *badge.Conversation) bool { return c.Version > since }),
		}, changes),
		cmp.Diff(listed(want, known), d.pages(t, want.ID, false, limit)),
		cmp.Diff(listed(want, unread), d.pages(t, want.ID, true, limit)),
	}, func(diff string) bool { return diff == "" }), "\n")
}

// pages reads a user's conversations page by page.
func (d *database) pages(t *testing.T, user string, unreadOnly bool, limit int) []pubsub.Conversation {
	t.Helper()
	all := []pubsub.Conversation{}
	for cursor := ""; ; {
		page, next, err := d.reader.Conversations(t.Context(), user, unreadOnly, limit, cursor)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if next == "" {
			return all
		}
		if len(page) != limit {
			t.Fatalf("a page of %d has %d, and is not the last", limit, len(page))
		}
		if len(all) > 1000 { // which no test has
			t.Fatal("the pages do not end")
		}
		cursor = next
	}
}

// checkSums checks with SQL that, for every user there is, the total is the
// sum of what its conversations add by their levels, the categories add up to
// it, and every count is that of its set.
func (d *database) checkSums(t *testing.T) {
	t.Helper()
	const wrongUsersSQL = `
WITH counted AS (
    SELECT user_id, category, mentions, level,
           CASE WHEN left_seq >= last_seq OR level = 'none' THEN 0
                WHEN level = 'mentions' THEN mentions
                WHEN marked_unread THEN greatest(1, unread)
                ELSE unread
           END AS adds
    FROM badged.conversations
), users AS (
    SELECT user_id, sum(adds) AS total, coalesce(sum(mentions) FILTER (WHERE level <> 'none'), 0) AS mentions
    FROM counted GROUP BY user_id
), categories AS (
    SELECT user_id, jsonb_object_agg(category, adds) AS categories
    FROM (SELECT user_id, category, sum(adds) AS adds FROM counted GROUP BY user_id, category HAVING sum(adds) > 0) AS sums
    GROUP BY user_id
)
SELECT u.user_id || ': ' || to_jsonb(u)::text || ' but the sums are ' || coalesce(to_jsonb(s)::text, 'none') || ' and ' || coalesce(c.categories::text, 'none')
FROM users AS s
FULL JOIN badged.users AS u USING (user_id)
LEFT JOIN categories AS c USING (user_id)
WHERE coalesce(u.total, 0) <> coalesce(s.total, 0)
   OR coalesce(u.mentions, 0) <> coalesce(s.mentions, 0)
   OR coalesce(u.categories, '{}') <> coalesce(c.categories, '{}')
   OR coalesce((SELECT sum(v::bigint) FROM jsonb_each_text(u.categories) AS e (k, v)), 0) <> coalesce(u.total, 0)`
	const wrongSetsSQL = `
SELECT user_id || ' in ' || conversation_id || ': ' || to_jsonb(c)::text
FROM badged.conversations AS c
WHERE unread <> (SELECT coalesce(sum(upper(r) - lower(r)), 0) FROM unnest(unread_set) AS r)
   OR mentions <> (SELECT coalesce(sum(upper(r) - lower(r)), 0) FROM unnest(mention_set) AS r)
   OR unread_words IS NOT NULL OR mention_words IS NOT NULL
   OR NOT mention_set <@ unread_set OR unread_set && recalled_set
   OR lower(unread_set) <= read_seq OR upper(unread_set) > last_seq + 1`
	if n := d.lines(t, `SELECT count(*)::text FROM badged.users WHERE total > 0`)[0]; n == "0" {
		t.Fatal("nobody has anything unread, so that the sums show nothing")
	}
	for _, wrong := range slices.Concat(d.lines(t, wrongUsersSQL), d.lines(t, wrongSetsSQL)) {
		t.Error(wrong)
	}
}

// No update is made of a user of whom nobody hears, nor of one of whom nothing
// can be seen to have changed.
func TestUpdatesAreOfThoseWhoAreHeard(t *testing.T) {
	users := map[string]*badge.User{"ann": badge.NewUser("ann"), "ben": badge.NewUser("ben"), "eve": badge.NewUser("eve")}
	e := deliver("c", 1, "ann", "ben")
	store.Fold(&e, users)
	updates := store.ClientUpdates(store.Sorted(users), 3, "epoch", func(u pubsub.User) bool {
		return u == pubsub.User{ID: "ben", Partition: 3} || u.ID == "eve"
	})
	if len(updates) != 1 || updates[0].UserID != "ben" || updates[0].Total != 1 {
		t.Errorf("the updates are %+v, want one of ben", updates)
	}
}

// The room that is made for the arrays of a statement is enough, and not much
// more, whatever the rows.
func TestArraysFitTheirRoom(t *testing.T) {
	types := pgtype.NewMap()
	pgwire.RegisterArrays(types)
	oid := func(value any) uint32 {
		switch value.(type) {
		case []int64:
			return pgtype.Int8ArrayOID
		case []int32:
			return pgtype.Int4ArrayOID
		case []bool:
			return pgtype.BoolArrayOID
		}
		return pgtype.TextArrayOID
	}
	users := map[string]*badge.User{}
	for i := range 2000 {
		u := badge.NewUser(fmt.Sprint("user ", i))
		users[u.ID] = u
		if i%2 == 0 { // there are rows of it
			u.Stored, u.HasRow = 1, true
			u.Conversation("c").Stored = true
		}
		for _, e := range []events.Event{
			deliver("c", 1, u.ID), deliver("c", 3, u.ID), deliver("other", 1, u.ID),
			event("1", events.MessageRecalled, "c", func(d *events.Data) { d.Seq = 3 }, u.ID),
			event("2", events.ConversationLevelSet, "c", level(events.LevelMentions), u.ID),
			event("3", events.ConversationLeft, "other", nil, u.ID),
		} {
			e.Data.MentionedUserIDs = e.Data.UserIDs
			store.Fold(&e, users)
		}
	}
	var batch pgx.Batch
	all := store.NewTables(0).QueueWrites(&batch, store.Sorted(users))
	sum := 0
	for _, q := range batch.QueuedQueries {
		bytes := 0
		for i, value := range q.Arguments {
			of := oid(value)
			if i == 4 && len(q.Arguments) == 6 { // the categories of users
				of = pgtype.JSONBArrayOID
			}
			b, err := types.Encode(of, pgtype.BinaryFormatCode, value, nil)
			if err != nil {
				t.Fatal(err)
			}
			bytes += len(b)
		}
		if room := q.Arguments[0].(pgwire.Leading).Bytes; room < bytes || room > bytes+store.ArraysBytes*2 {
			t.Errorf("there is room for %d bytes, of %d, in %.60s", room, bytes, q.SQL)
		}
		sum += bytes
	}
	if len(batch.QueuedQueries) != 4 || all < sum {
		t.Errorf("%d statements take %d bytes, not %d", len(batch.QueuedQueries), sum, all)
	}
}
