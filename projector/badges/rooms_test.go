package badges_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// room is a room in memory: which messages are live, and which of them mention
// everybody.
type room struct {
	id, category     string
	changes, lastSeq int64
	live, all        map[int64]bool
	// bounds are those of the closed chunks.
	bounds []int64
}

// member is a membership in memory.
type member struct {
	room          *room
	joined, read  int64
	stored        int64 // version
	level         string
	marked        bool
	own, mentions map[int64]bool
	// reached is the read position while messages are marked unread, else 0, and seen the seen
	// position if it is above the read position.
	reached, seen int64
}

// conversation works out what a client sees.
func (m *member) conversation(version int64, levels category.Levels) pubsub.Conversation {
	direct := levels.Of(m.level, m.room.category) == "direct_mentions"
	c := pubsub.Conversation{
		ConversationID: m.room.id, ReadSeq: max(m.read, m.reached), SeenSeq: m.seen, LastSeq: m.room.lastSeq, Level: m.level, Category: m.room.category,
		MarkedUnread: m.marked, Version: version,
	}
	for _, seq := range slices.Sorted(maps.Keys(m.room.live)) {
		if seq <= m.read || m.own[seq] {
			continue
		}
		c.Unread++
		if c.FirstUnreadSeq == 0 {
			c.FirstUnreadSeq = seq
		}
		seen := seq <= max(m.read, m.reached, m.seen)
		if seen {
			c.Seen++
		}
		if m.room.all[seq] && !direct || m.mentions[seq] {
			if c.Mentions++; seen {
				c.SeenMentions++
			}
		}
	}
	return c
}

// numbers returns what a conversation adds to the badge.
func numbers(c *pubsub.Conversation, levels category.Levels) pubsub.Numbers {
	if c.Left {
		return pubsub.Numbers{}
	}
	return category.CountOf(c.Unread, c.Mentions, c.Unread-c.Seen, c.Mentions-c.SeenMentions, c.MarkedUnread).At(levels.Of(c.Level, c.Category))
}

// arrays returns seqs as the arrays of badged.rank.
func arrays(seqs map[int64]bool, above, upTo int64) (starts, before []int64, n int64) {
	last := int64(-1)
	for _, seq := range slices.Sorted(maps.Keys(seqs)) {
		if seq <= above || seq > upTo {
			continue
		}
		if seq != last+1 {
			starts, before = append(starts, seq), append(before, n)
		}
		last = seq
		n++
	}
	if n == int64(len(starts)) { // each range is one message
		return starts, nil, n
	}
	return starts, append(before, n), n
}

// encoded returns a set as it is stored.
func encoded(seqs map[int64]bool) []byte {
	var s badge.RangeSet
	for seq := range seqs {
		s.Add(seq)
	}
	if s.Len() == 0 {
		return nil
	}
	return []byte(s.Encode())
}

// tables draws rooms and users of a partition and writes their rows. The numbers of
// the ordinary conversations are arbitrary.
type tables struct {
	*rand.Rand
	d         *projectortest.Database
	partition int
	rooms     []*room
	// want are the states of users; members are their memberships.
	want    map[string]*pubsub.Snapshot
	stored  map[string]map[string]int64 // versions of conversations
	members map[string][]*member
}

func (r *tables) pick(n int) bool { return r.IntN(n) == 0 }

func (r *tables) drawRoom(t *testing.T, id string) {
	m := &room{
		id: id, category: []string{"chat", "teams/a", "teams/b"}[r.IntN(3)], changes: r.Int64N(100),
		live: map[int64]bool{}, all: map[int64]bool{},
	}
	gap := []int64{1, 1, 7, 1 << 40}[r.IntN(4)]
	for range r.IntN(60) {
		m.lastSeq += 1 + r.Int64N(gap)
		if !r.pick(8) {
			m.live[m.lastSeq] = true
			if r.pick(5) {
				m.all[m.lastSeq] = true
			}
		}
		if r.pick(15) {
			m.bounds = append(m.bounds, m.lastSeq)
		}
	}
	r.rooms = append(r.rooms, m)
	since, closedLive, closedAll := int64(0), int64(0), int64(0)
	for _, bound := range m.bounds {
		live, liveBefore, n := arrays(m.live, since, bound)
		all, allBefore, ofAll := arrays(m.all, since, bound)
		r.d.Exec(t, `INSERT INTO badged.room_chunks (partition_id, conversation_id, bound, live, mentions_all, live_starts, live_before, all_starts, all_before)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, r.partition, id, bound, n, ofAll, live, liveBefore, all, allBefore)
		since, closedLive, closedAll = bound, closedLive+n, closedAll+ofAll
	}
	live, liveBefore, _ := arrays(m.live, since, m.lastSeq)
	all, allBefore, _ := arrays(m.all, since, m.lastSeq)
	r.d.Exec(t, `INSERT INTO badged.rooms (partition_id, conversation_id, category, changes, last_seq, since, closed_live, closed_all, closed_changes, members, delivered_hour,
    live_starts, live_before, all_starts, all_before)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 1, 0, $9, $10, $11, $12)`, r.partition, id, m.category, m.changes, m.lastSeq, since, closedLive, closedAll, live, liveBefore, all, allBefore)
}

func (r *tables) drawUser(t *testing.T, id string) {
	s := &pubsub.Snapshot{Badge: pubsub.Badge{UserID: id, Epoch: r.d.Badge(t, id).Epoch, Version: 1 + r.Int64N(50), Categories: map[string]pubsub.Numbers{}}}
	r.want[id], r.stored[id] = s, map[string]int64{}
	version, carried := s.Version, int64(0)
	if r.pick(2) {
		carried = r.Int64N(20)
	}
	count := func(c pubsub.Conversation) {
		if n := numbers(&c, s.Levels); n != (pubsub.Numbers{}) {
			s.Add(n)
			category.AddTo(s.Categories, c.Category, n)
		}
	}
	level := func() string {
		return []string{"default", "default", "all", "mentions", "direct_mentions", "none"}[r.IntN(6)]
	}
	for _, path := range []string{"chat", "teams", "teams/b"} {
		if of := level(); of != "default" && r.pick(2) {
			if s.Levels == nil {
				s.Levels = map[string]string{}
			}
			s.Levels[path] = of
		}
	}
	for i := range r.IntN(6) {
		c := pubsub.Conversation{
			ConversationID: fmt.Sprint("c", i), ReadSeq: r.Int64N(5), LastSeq: 10, Unread: r.Int64N(3), Level: level(), Category: "chat",
			MarkedUnread: r.pick(4), Version: 1 + r.Int64N(version),
		}
		unread := map[int64]bool{}
		for seq := range c.Unread {
			unread[c.ReadSeq+1+seq] = true
			c.FirstUnreadSeq = c.ReadSeq + 1
		}
		c.Mentions = min(c.Unread, r.Int64N(2))
		count(c)
		r.d.Exec(t, `INSERT INTO badged.conversations (partition_id, user_id, conversation_id, version, read_seq, last_seq, unread, mentions, level, delivered_hour, marked_unread, category, unread_set)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $11, $12)`, r.partition, id, c.ConversationID, c.Version, c.ReadSeq, c.LastSeq, c.Unread, c.Mentions, c.Level, c.MarkedUnread, c.Category, encoded(unread))
		r.stored[id][c.ConversationID] = c.Version
		s.Conversations = append(s.Conversations, c)
	}
	s.Rest = s.Badge
	s.Rest.Version, s.Rest.Categories = version+carried, maps.Clone(s.Categories)
	s.Version += carried
	stored := map[string]json.RawMessage{}
	for path, n := range s.Categories {
		stored[path] = badge.AppendNumbers(nil, n, s.Levels[path])
	}
	for path, of := range s.Levels {
		stored[path] = badge.AppendNumbers(nil, s.Categories[path], of)
	}
	var extra any
	if text := badge.EncodeExtra(s.Numbers); text != "" {
		extra = text
	}
	if r.pick(2) {
		r.d.Exec(t, `INSERT INTO badged.users (partition_id, user_id, version, carried, total, mentions, categories, extra, unread_conversations) VALUES ($1, $2, $3, nullif($4::bigint, 0), $5, $6, $7, $8, $9)`,
			r.partition, id, version, carried, s.Total, s.Mentions, stored, extra, s.UnreadConversations)
	} else { // as of a user with many paths
		r.d.Exec(t, `INSERT INTO badged.users (partition_id, user_id, version, carried, total, mentions, categories, extra, unread_conversations, path_rows) VALUES ($1, $2, $3, nullif($4::bigint, 0), $5, $6, '{}', $7, $8, 17)`,
			r.partition, id, version, carried, s.Total, s.Mentions, extra, s.UnreadConversations)
		r.d.Exec(t, `INSERT INTO badged.paths (partition_id, user_id, category, numbers, level) SELECT $1, $2, key, value - 7, (value ->> 7)::badged.level FROM jsonb_each($3::jsonb)`, r.partition, id, stored)
	}
	for _, of := range r.rooms {
		if !r.pick(2) {
			continue
		}
		m := &member{
			room: of, joined: r.Int64N(of.changes + 1), read: r.Int64N(of.lastSeq + 2), stored: 1 + r.Int64N(version), level: level(), marked: r.pick(4),
			own: map[int64]bool{}, mentions: map[int64]bool{},
		}
		if r.pick(4) {
			m.reached = m.read + 1 + r.Int64N(10)
		}
		if r.pick(3) {
			m.seen = max(m.read, m.reached) + 1 + r.Int64N(of.lastSeq+1)
		}
		ownAll, namedAll := int64(0), int64(0)
		for _, seq := range slices.Sorted(maps.Keys(of.live)) {
			switch {
			case seq <= m.read:
			case r.pick(3):
				m.own[seq] = true
				if of.all[seq] {
					ownAll++
				}
			case r.pick(5):
				m.mentions[seq] = true
				if of.all[seq] {
					namedAll++
				}
			}
		}
		besideRoom := int64(len(m.mentions)) - namedAll - ownAll
		var unseen []int64
		if position := max(m.read, m.reached, m.seen); position > m.read {
			unseen = make([]int64, 3)
			for seq := range m.own {
				if seq > position {
					unseen[0]++
					if of.all[seq] {
						unseen[1]--
					}
				}
			}
			for seq := range m.mentions {
				if seq > position {
					if unseen[2]++; !of.all[seq] {
						unseen[1]++
					}
				}
			}
		}
		r.d.Exec(t, `INSERT INTO badged.conversations (partition_id, user_id, conversation_id, joined, version, read_seq, last_seq, unread, mentions, level, delivered_hour, marked_unread, category, own_set, reached_seq, seen_seq, unseen, named)
VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8, $9, 0, $10, 'unused', $11, nullif($12::bigint, 0), nullif($13::bigint, 0), $14, $15)`, r.partition, id, of.id, m.joined, m.stored, m.read, len(m.own), besideRoom, m.level, m.marked, encoded(m.own), m.reached, m.seen, unseen, len(m.mentions))
		r.members[id] = append(r.members[id], m)
		r.stored[id][of.id] = m.stored
		s.Version += of.changes - m.joined
	}
	if len(r.members[id]) > 0 {
		r.d.Exec(t, `UPDATE badged.users SET carried = coalesce(carried, 0) WHERE partition_id = $1 AND user_id = $2`, r.partition, id)
	}
	for i := range s.Conversations {
		s.Conversations[i].Version += s.Version - version
	}
	for _, m := range r.members[id] {
		c := m.conversation(s.Version, s.Levels)
		count(c)
		s.Conversations = append(s.Conversations, c)
	}
	slices.SortFunc(s.Conversations, func(a, b pubsub.Conversation) int {
		if va, vb := r.stored[id][a.ConversationID], r.stored[id][b.ConversationID]; va != vb {
			return int(vb - va)
		}
		return compareIDs(a, b)
	})
}

func compareIDs(a, b pubsub.Conversation) int {
	if a.ConversationID < b.ConversationID {
		return -1
	}
	return 1
}

// Every read of members gives the numbers that their messages give, counted one by
// one.
func TestReadMembers(t *testing.T) {
	for seed := range uint64(8) {
		d := projectortest.New(t)
		r := &tables{
			Rand: rand.New(rand.NewPCG(seed, 0)), d: d,
			want: map[string]*pubsub.Snapshot{}, stored: map[string]map[string]int64{}, members: map[string][]*member{},
		}
		for i := range 6 {
			r.drawRoom(t, fmt.Sprint("r", i))
		}
		for i := range 6 {
			r.drawUser(t, foldtest.User(0, i))
		}
		r.check(t)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func (r *tables) check(t *testing.T) {
	t.Helper()
	users := slices.Sorted(maps.Keys(r.want))
	var held []pubsub.Held
	var want []pubsub.Badge
	for _, user := range users {
		s := r.want[user]
		want = append(want, s.Badge)
		projectortest.Same(t, "the badge", s.Badge, r.d.Badge(t, user))
		projectortest.Same(t, "the pages", s.Conversations, pages(t, r.d, user, false, 1+r.IntN(5)))
		unread := append([]pubsub.Conversation(nil), slices.DeleteFunc(slices.Clone(s.Conversations), func(c pubsub.Conversation) bool { return c.Unread == 0 && !c.MarkedUnread })...)
		projectortest.Same(t, "the unread pages", unread, append([]pubsub.Conversation(nil), pages(t, r.d, user, true, 1+r.IntN(5))...))
		for _, c := range s.Conversations {
			got, err := r.d.Reader.Conversation(t.Context(), user, c.ConversationID)
			if diff := cmp.Diff(c, got); diff != "" || err != nil {
				t.Errorf("a conversation (-want +got):\n%s\nerror %v", diff, err)
			}
		}
		r.checkView(t, s)
		held = append(held, pubsub.Held{UserID: user}, pubsub.Held{UserID: user, Epoch: s.Epoch, Version: r.Int64N(s.Version + 2)})
	}
	got, err := r.d.Reader.Badges(t.Context(), users)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, badges (-want +got):\n%s", err, diff)
	}
	for i := range want {
		want[i].Categories, want[i].Levels = nil, nil
	}
	got, err = r.d.Reader.Versions(t.Context(), users)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, versions (-want +got):\n%s", err, diff)
	}
	r.checkViews(t)
	states, err := r.d.Reader.States(t.Context(), r.partition, held)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range held {
		r.checkState(t, h, states[i])
	}
}

// checkView compares what the reader says of the state of a user to somebody who may
// see some categories.
func (r *tables) checkView(t *testing.T, s *pubsub.Snapshot) {
	t.Helper()
	var categories []string
	for _, path := range []string{"chat", "teams", "teams/b"} {
		if r.IntN(2) == 0 {
			categories = append(categories, path)
		}
	}
	categories = append(categories, "none such")
	var all []pubsub.Conversation
	for _, c := range s.Conversations {
		if category.AnyCovers(categories, c.Category) {
			all = append(all, c)
		}
	}
	listed := slices.DeleteFunc(append([]pubsub.Conversation{}, all...), func(c pubsub.Conversation) bool {
		return c.Unread == 0 && !c.MarkedUnread && c.Level == string(events.LevelDefault)
	})
	got, err := r.d.Reader.View(t.Context(), s.UserID, categories)
	if err != nil {
		t.Fatal(err)
	}
	projectortest.Same(t, fmt.Sprintf("the view of %q", categories), listed, got.Conversations)
	projectortest.Same(t, fmt.Sprintf("the pages of %q", categories), all, append([]pubsub.Conversation(nil), pagesIn(t, r.d, s.UserID, categories, false, 1+r.IntN(3))...))
	unread := append([]pubsub.Conversation(nil), slices.DeleteFunc(slices.Clone(all), func(c pubsub.Conversation) bool { return c.Unread == 0 && !c.MarkedUnread })...)
	projectortest.Same(t, fmt.Sprintf("the unread pages of %q", categories), unread, append([]pubsub.Conversation(nil), pagesIn(t, r.d, s.UserID, categories, true, 1+r.IntN(3))...))
	for _, muted := range []bool{false, true} {
		want := append([]pubsub.Conversation(nil), slices.DeleteFunc(slices.Clone(all), func(c pubsub.Conversation) bool {
			n := numbers(&c, s.Levels)
			return muted && n.Muted.Total == 0 || !muted && n.Total == 0
		})...)
		page, _, err := r.d.Reader.Conversations(t.Context(), s.UserID, badges.Filter{Within: categories, Muted: &muted}, 100, "")
		if err != nil {
			t.Fatal(err)
		}
		projectortest.Same(t, fmt.Sprintf("of %q those that are muted: %v", categories, muted), want, append([]pubsub.Conversation(nil), page...))
	}
	within := got.Within(category.Tops(categories))
	sum := pubsub.Numbers{}
	for _, c := range all {
		sum.Add(numbers(&c, s.Levels))
	}
	projectortest.Same(t, fmt.Sprintf("the badge of %q", categories), s.Within(category.Tops(categories)), within)
	projectortest.Same(t, fmt.Sprintf("the numbers of %q", categories), sum, within.Numbers)
}

// checkViews compares the views for SQL readers.
func (r *tables) checkViews(t *testing.T) {
	t.Helper()
	var badges, categories, unread []string
	for _, user := range slices.Sorted(maps.Keys(r.want)) {
		s := r.want[user]
		badges = append(badges, fmt.Sprintln(user, s.Epoch, s.Version, s.Numbers))
		for _, path := range slices.Sorted(maps.Keys(s.Categories)) {
			categories = append(categories, fmt.Sprintln(user, path, s.Categories[path]))
		}
		list := slices.SortedFunc(slices.Values(s.Conversations), compareIDs)
		for _, c := range list {
			n := numbers(&c, s.Levels)
			unread = append(unread, fmt.Sprintln(user, c.ConversationID, c.Unread, c.Mentions, n.Total, n.Muted.Total, n.Unseen, c.ReadSeq, max(c.ReadSeq, c.SeenSeq), c.LastSeq, s.LevelOf(&c), c.Level, c.Category, c.MarkedUnread))
		}
	}
	rows, _ := r.d.Pool.Query(t.Context(), `SELECT user_id, epoch, version, total, mentions, unread_conversations, unseen, muted_total, muted_conversations, marked FROM badged.badges ORDER BY user_id`)
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var b pubsub.Badge
		err := row.Scan(&b.UserID, &b.Epoch, &b.Version, &b.Total, &b.Mentions, &b.UnreadConversations, &b.Unseen, &b.Muted.Total, &b.Muted.Conversations, &b.Marked)
		return fmt.Sprintln(b.UserID, b.Epoch, b.Version, b.Numbers), err
	})
	if diff := cmp.Diff(badges, got); diff != "" || err != nil {
		t.Errorf("error %v, badged.badges (-want +got):\n%s", err, diff)
	}
	rows, _ = r.d.Pool.Query(t.Context(), `SELECT user_id, category, total, mentions, unread_conversations, unseen, muted_total, muted_conversations, marked FROM badged.categories ORDER BY user_id, category COLLATE "C"`)
	got, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var user, path string
		var n pubsub.Numbers
		err := row.Scan(&user, &path, &n.Total, &n.Mentions, &n.UnreadConversations, &n.Unseen, &n.Muted.Total, &n.Muted.Conversations, &n.Marked)
		return fmt.Sprintln(user, path, n), err
	})
	if diff := cmp.Diff(categories, got); diff != "" || err != nil {
		t.Errorf("error %v, badged.categories (-want +got):\n%s", err, diff)
	}
	rows, _ = r.d.Pool.Query(t.Context(), `SELECT user_id, conversation_id, unread, mentions, adds, muted, unseen, read_seq, seen_seq, last_seq, level::text, own_level::text, category, marked_unread
FROM badged.unread ORDER BY user_id, conversation_id`)
	got, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var user string
		var n pubsub.Numbers
		var level string
		var c pubsub.Conversation
		err := row.Scan(&user, &c.ConversationID, &c.Unread, &c.Mentions, &n.Total, &n.Muted.Total, &n.Unseen, &c.ReadSeq, &c.SeenSeq, &c.LastSeq, &level, &c.Level, &c.Category, &c.MarkedUnread)
		return fmt.Sprintln(user, c.ConversationID, c.Unread, c.Mentions, n.Total, n.Muted.Total, n.Unseen, c.ReadSeq, c.SeenSeq, c.LastSeq, level, c.Level, c.Category, c.MarkedUnread), err
	})
	if diff := cmp.Diff(unread, got); diff != "" || err != nil {
		t.Errorf("error %v, badged.unread (-want +got):\n%s", err, diff)
	}
}

// checkState compares what the holder of a state is told.
func (r *tables) checkState(t *testing.T, held pubsub.Held, got pubsub.Snapshot) {
	t.Helper()
	want := *r.want[held.UserID]
	want.Whole = held.Epoch == "" || held.Version > want.Version
	want.Conversations = slices.DeleteFunc(slices.Clone(want.Conversations), func(c pubsub.Conversation) bool {
		if want.Whole {
			return c.Unread == 0 && !c.MarkedUnread && c.Level == string(events.LevelDefault)
		}
		return c.Version <= held.Version
	})
	if len(r.members[held.UserID]) == 0 {
		want.Rest = got.Rest // not used without memberships
	}
	var composed pubsub.Badge
	if len(got.Memberships) > 0 {
		composed = compose(got)
		projectortest.Same(t, "the badge of the parts", got.Badge, composed)
	}
	if len(got.Memberships) != len(r.members[held.UserID]) {
		t.Errorf("%d memberships, want %d", len(got.Memberships), len(r.members[held.UserID]))
	}
	got.Memberships = nil
	projectortest.Same(t, fmt.Sprintf("the state for a holder of version %d", held.Version), want, got)
}

// compose adds memberships to the badge without them.
func compose(s pubsub.Snapshot) pubsub.Badge {
	b := s.Rest
	b.Categories = maps.Clone(b.Categories)
	for _, m := range s.Memberships {
		n := m.Adds(b.Levels)
		b.Version += m.Room.Changes - m.Joined
		b.Add(n)
		category.AddTo(b.Categories, m.Room.Category, n)
	}
	return b
}
