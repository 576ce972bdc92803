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
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/fold/store/storetest"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// sparse is a distance at which no two seqs share a word.
const sparse = 100

// With the real log and tables, any history, cut into any transactions,
// batches and generations of keys, gives the tables of the model, with the
// versions of a replay one by one, and so does every answer of the reader. In
// the end the sums hold for every user.
func TestTablesAgreeWithTheModel(t *testing.T) {
	d := newDatabase(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++ // all histories share a database, each with its own users
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)}
		history := foldtest.DrawHistory(rt, foldtest.EveryType(), users)
		for i := range history {
			history[i].Source = fmt.Sprint("history ", n)
		}
		start := d.positions(t)
		d.appendAndFold(t, rt, history)

		for _, id := range users {
			p := events.PartitionOf(id, foldtest.Partitions)
			truth := foldtest.Model{Events: history, Generations: d.generationsOf(t, history, p, start[p])}
			if diff := cmp.Diff(truth.Describe(id), d.describe(t, id)); diff != "" {
				rt.Fatalf("after\n%sin generations %v the tables of %s are (-want +got):\n%s", foldtest.Story(history), truth.Generations, id, diff)
			}
			want := d.replay(t, p, start[p]).User(id)
			if diff := cmp.Diff(storetest.Versions(want), d.versions(t, id)); diff != "" {
				rt.Fatalf("after\n%sin generations %v the versions of %s are (-one by one +got):\n%s", foldtest.Story(history), truth.Generations, id, diff)
			}
			if diff := d.compareAnswers(t, rt, want); diff != "" {
				rt.Fatalf("after\n%sthe reader says of %s (-want +got):\n%s", foldtest.Story(history), id, diff)
			}
		}
	})
	d.checkSums(t)
}

// Seqs at the limits, and a sparse room that is never read: the sets survive
// the round trip through the tables.
func TestUnusualSetsThroughTheTables(t *testing.T) {
	ann := foldtest.User(0, 0)
	var far []events.Event
	for i := range int64(badge.MaxRanges + 10) {
		e := foldtest.Deliver("sparse", 1+sparse*i, ann)
		if i%3 == 0 {
			e.Data.MentionedUserIDs = e.Data.UserIDs
		}
		far = append(far, e)
	}
	var holes []events.Event
	for i := range int64(2*badge.MaxRanges + 100) {
		e := foldtest.Deliver("holes", 1+3*i/2, ann)
		if i%3 == 0 {
			e.Data.MentionedUserIDs = e.Data.UserIDs
		}
		holes = append(holes, e)
	}
	last := int64(math.MaxInt64)
	for name, history := range map[string][]events.Event{
		"the greatest seqs": {
			foldtest.Deliver("c", last, ann), foldtest.Deliver("c", last-2, ann), foldtest.Deliver("c", last-1, ann),
			foldtest.Event("recall", events.MessageRecalled, "c", func(d *events.Data) { d.Seq = last - 1 }, ann),
			foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(last-2), ann),
		},
		"read to the end": {foldtest.Deliver("c", last, ann), foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(last), ann), foldtest.Deliver("c", 1, ann)},
		"many holes": append(slices.Clone(holes),
			foldtest.Event("read", events.ConversationRead, "holes", foldtest.UpTo(20), ann),
			foldtest.Event("recall", events.MessageRecalled, "holes", func(d *events.Data) { d.Seq = 25 }, ann), foldtest.Deliver("holes", 24, ann)),
		"too many ranges": append(slices.Clone(far),
			foldtest.Event("recall", events.MessageRecalled, "sparse", func(d *events.Data) { d.Seq = 1 }, ann)),
		"too many ranges, read in part": append(slices.Clone(far),
			foldtest.Event("read", events.ConversationRead, "sparse", foldtest.UpTo(5*sparse), ann)),
		"too many ranges, read until exact": append(slices.Clone(far),
			foldtest.Event("read", events.ConversationRead, "sparse", foldtest.UpTo(1000*sparse+1), ann)),
	} {
		t.Run(name, func(t *testing.T) {
			d, single := newDatabase(t), storetest.NewMemory()
			for i := range history {
				single.Commit(t, history[i])
			}
			d.append(t, history...)
			for _, p := range d.projector.partitions {
				p.size.Events = 100
			}
			d.fold(t)
			if diff := cmp.Diff(single.Describe(ann), d.describe(t, ann)); diff != "" {
				t.Errorf("the tables are (-one by one +got):\n%s", diff)
			}
			if diff := cmp.Diff(storetest.Versions(single.Users[ann]), d.versions(t, ann)); diff != "" {
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
		p.size.Events = rapid.IntRange(1, 10).Draw(rt, "batch")
	}
	d.fold(t)
}

// describe returns the state of a user in the tables as text.
func (d *database) describe(t *testing.T, id string) string {
	t.Helper()
	s := foldtest.State{Categories: map[string]category.Numbers{}, Levels: map[string]string{}}
	rows, err := d.pool.Query(t.Context(), `SELECT total, mentions, unread_conversations, unseen, muted_total, muted_conversations, marked FROM badged.badges WHERE user_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	targets := func(n *category.Numbers) []any {
		return []any{&n.Total, &n.Mentions, &n.UnreadConversations, &n.Unseen, &n.Muted.Total, &n.Muted.Conversations, &n.Marked}
	}
	for rows.Next() {
		if err := rows.Scan(targets(&s.Numbers)...); err != nil {
			t.Fatal(err)
		}
	}
	rows, err = d.pool.Query(t.Context(), `SELECT category, total, mentions, unread_conversations, unseen, muted_total, muted_conversations, marked FROM badged.categories WHERE user_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var name string
		var n category.Numbers
		if err := rows.Scan(append([]any{&name}, targets(&n)...)...); err != nil {
			t.Fatal(err)
		}
		s.Categories[name] = n
	}
	rows, err = d.pool.Query(t.Context(), `SELECT category, level::text FROM badged.levels WHERE user_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var name, level string
		if err := rows.Scan(&name, &level); err != nil {
			t.Fatal(err)
		}
		s.Levels[name] = level
	}
	rows, err = d.pool.Query(t.Context(), `SELECT conversation_id, unread, coalesce(again_set, unread_set), mentions,
       read_seq, last_seq, level::text, coalesce(level_until, 0), category, marked_unread,
       coalesce(left_seq >= last_seq, false) AND version > 0, greatest(read_seq, seen_seq), coalesce(unseen[1], unread), coalesce(unseen[2], mentions)
FROM badged.conversations WHERE user_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	s.Conversations, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c foldtest.ConversationState, err error) {
		var unread []byte
		var until int64
		if err := row.Scan(&c.ID, &c.Unread, &unread, &c.Mentions, &c.Read, &c.Last, &c.Level, &until, &c.Category, &c.Marked, &c.Left, &c.Seen, &c.Unseen, &c.UnseenMentions); err != nil {
			return c, err
		}
		c.Until = pubsub.TimeOf(until)
		c.First, err = badge.FirstOf(unread)
		return c, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.String()
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

// compareAnswers compares the reader's answers about a user with its state,
// and returns the difference.
func (d *database) compareAnswers(t *testing.T, rt *rapid.T, want *badge.User) string {
	t.Helper()
	totals := pubsub.Badge{
		UserID: want.ID, Epoch: d.badge(t, want.ID).Epoch, Version: want.Version,
		Numbers: want.Numbers, Categories: want.Paths.ByName(), Levels: want.Paths.Levels,
	}
	if len(totals.Levels) == 0 { // after the last level was set to the default
		totals.Levels = nil
	}
	since := rapid.Int64Range(0, want.Version).Draw(rt, "since")
	states, err := d.reader.States(t.Context(), events.PartitionOf(want.ID, foldtest.Partitions), []pubsub.Held{{UserID: want.ID, Epoch: totals.Epoch, Version: since}})
	if err != nil {
		t.Fatal(err)
	}
	limit := rapid.IntRange(1, 3).Draw(rt, "page")
	unread := func(c *badge.Conversation) bool { return !c.Left() && (c.Count() > 0 || c.Marked) }
	known := func(c *badge.Conversation) bool { // others are not listed
		return !c.Left() && (c.LastSeq > 0 || c.ReadSeq > 0 || c.Marked || c.Level != events.LevelDefault || c.LevelUntil != 0)
	}
	shows := func(c *badge.Conversation) bool {
		return unread(c) || !c.Left() && (c.Level != events.LevelDefault || c.LevelUntil != 0)
	}
	categories := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"chat", "likes", "likes/a", "system"}), 1, 2, rapid.ID).Draw(rt, "categories")
	in := func(pass func(c *badge.Conversation) bool) func(c *badge.Conversation) bool {
		return func(c *badge.Conversation) bool { return category.AnyCovers(categories, c.Category) && pass(c) }
	}
	view, err := d.reader.View(t.Context(), want.ID, categories)
	if err != nil {
		t.Fatal(err)
	}
	view.Rest = pubsub.Badge{}
	within := totals
	within.Categories = maps.Clone(totals.Categories)
	maps.DeleteFunc(within.Categories, func(name string, _ pubsub.Numbers) bool {
		return want.Paths.HasRows() && !category.AnyCovers(categories, name)
	})
	filtered := func(f badges.Filter, pass func(v *badge.View) bool) string {
		return cmp.Diff(listed(want, func(c *badge.Conversation) bool {
			v := c.View()
			return known(c) && (f.Category == "" || category.Covers(f.Category, c.Category)) && pass(&v)
		}), d.pages(t, want.ID, f, limit))
	}
	muted, notMuted := true, false
	return strings.Join(slices.DeleteFunc([]string{
		cmp.Diff(totals, d.badge(t, want.ID)),
		cmp.Diff(pubsub.Snapshot{Badge: totals, Conversations: listed(want, shows), Whole: true}, d.snapshot(t, want.ID)),
		cmp.Diff(pubsub.Snapshot{
			Badge:         totals,
			Conversations: listed(want, func(c *badge.Conversation) bool { return c.Version > since }),
		}, states[0]),
		cmp.Diff(pubsub.Snapshot{Badge: within, Conversations: listed(want, in(shows)), Whole: true}, view),
		cmp.Diff(listed(want, in(known)), d.pages(t, want.ID, badges.Filter{Within: categories}, limit)),
		cmp.Diff(listed(want, known), d.pages(t, want.ID, badges.Filter{}, limit)),
		cmp.Diff(listed(want, unread), d.pages(t, want.ID, badges.Filter{Unread: true}, limit)),
		filtered(badges.Filter{Category: "likes", Muted: &muted}, func(v *badge.View) bool { return v.Adds(want.Paths.Levels).Muted.Total > 0 }),
		filtered(badges.Filter{Muted: &notMuted}, func(v *badge.View) bool { return v.Adds(want.Paths.Levels).Total > 0 }),
	}, func(diff string) bool { return diff == "" }), "\n")
}

func (d *database) snapshot(t *testing.T, user string) pubsub.Snapshot {
	t.Helper()
	s, err := d.reader.Snapshot(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pages reads a user's conversations page by page.
func (d *database) pages(t *testing.T, user string, f badges.Filter, limit int) []pubsub.Conversation {
	t.Helper()
	all := []pubsub.Conversation{}
	for cursor := ""; ; {
		page, next, err := d.reader.Conversations(t.Context(), user, f, limit, cursor)
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
		if len(all) > 1000 { // no test has as many
			t.Fatal("the pages do not end")
		}
		cursor = next
	}
}

// checkSums checks in SQL, for every user, that the total is the sum of what
// its conversations add by their levels, that the categories add up to it, that the
// conversations which add something are counted, and
// that every count matches its set.
func (d *database) checkSums(t *testing.T) {
	t.Helper()
	d.append(t, foldtest.Deliver("sums", 1, "zoe")) // there is something unread, whatever was drawn
	d.fold(t)
	const wrongUsersSQL = `
WITH sums AS (
    SELECT partition_id, user_id, p.category, sum(adds) AS total, count(*) FILTER (WHERE adds > 0) AS conversations,
        sum(mentions) FILTER (WHERE level <> 'none') AS mentions, sum(unseen) AS unseen, sum(muted) AS muted
    FROM badged.unread AS u CROSS JOIN LATERAL unnest(ARRAY[''] || badged.paths_of(u.category)) AS p (category)
    GROUP BY partition_id, user_id, p.category
), numbers AS (
    SELECT partition_id, user_id, '' AS category, total, mentions, unread_conversations, unseen, muted_total FROM badged.badges
    UNION ALL
    SELECT partition_id, user_id, category, total, mentions, unread_conversations, unseen, muted_total FROM badged.categories
)
SELECT user_id || ' in ' || category || ': ' || to_jsonb(n)::text || ' but the sums are ' || coalesce(to_jsonb(s)::text, 'none')
FROM numbers AS n FULL JOIN sums AS s USING (partition_id, user_id, category)
WHERE (coalesce(n.total, 0), coalesce(n.mentions, 0), coalesce(n.unread_conversations, 0), coalesce(n.unseen, 0), coalesce(n.muted_total, 0))
    <> (coalesce(s.total, 0), coalesce(s.mentions, 0), coalesce(s.conversations, 0), coalesce(s.unseen, 0), coalesce(s.muted, 0))`
	for _, wrong := range d.lines(t, wrongUsersSQL) {
		t.Error(wrong)
	}
	d.checkSets(t)
}

// checkSets compares the sets of all conversations with the columns beside them
// and with each other.
func (d *database) checkSets(t testing.TB) {
	t.Helper()
	rows, _ := d.pool.Query(t.Context(), `SELECT user_id || ' in ' || conversation_id, unread, mentions, read_seq, last_seq, unread_set, mention_set, recalled_set, joined IS NOT NULL, own_set, own_all_set, again_set, named_all_set, level::text
FROM badged.conversations`)
	var name string
	var unread, mentions, read, last int64
	var member bool
	var stored [7][]byte
	var level string
	_, err := pgx.ForEachRow(rows, []any{&name, &unread, &mentions, &read, &last, &stored[0], &stored[1], &stored[2], &member, &stored[3], &stored[4], &stored[5], &stored[6], &level}, func() error {
		var sets [7]badge.BoundedSet
		for i := range stored {
			var err error
			if sets[i], err = badge.DecodeSet(stored[i]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		unreadSet, mentionSet, recalledSet, againSet := &sets[0], &sets[1], &sets[2], &sets[5]
		wrong := unread != unreadSet.Len()+againSet.Len() || mentions != mentionSet.Len()
		if own, ownAll := &sets[3], &sets[4]; member {
			besideRoom := mentionSet.Len() - ownAll.Len()
			if level == string(events.LevelDirectMentions) {
				besideRoom = mentionSet.Len() + sets[6].Len()
			}
			wrong = unread != own.Len() || mentions != besideRoom || unreadSet.Len()+againSet.Len()+recalledSet.Len() > 0
			for _, s := range []*badge.BoundedSet{own, ownAll, mentionSet, &sets[6]} {
				wrong = wrong || s.Len() > 0 && s.Min() <= read
			}
			mentionSet = &badge.BoundedSet{} // its messages are in the set of the room
		}
		for _, r := range unreadSet.Ranges {
			wrong = wrong || r.Lo <= read || r.Hi > last
			for seq := r.Lo; seq <= r.Hi; seq++ {
				wrong = wrong || recalledSet.Contains(seq)
			}
		}
		for _, r := range againSet.Ranges {
			wrong = wrong || r.Hi > min(read, last)
			for seq := r.Lo; seq <= r.Hi; seq++ {
				wrong = wrong || recalledSet.Contains(seq)
			}
		}
		for _, r := range mentionSet.Ranges {
			for seq := r.Lo; seq <= r.Hi; seq++ {
				wrong = wrong || !unreadSet.Contains(seq)
			}
		}
		if wrong {
			t.Errorf("%s: %d unread %s and again %s, %d mentions %s, recalled %s, read up to %d of %d", name, unread, unreadSet, againSet, mentions, mentionSet, recalledSet, read, last)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
