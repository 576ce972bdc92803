package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/traffic"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/pubsub"
)

// roomTally computes the badges of the members of rooms with plain sets.
type roomTally map[string]*talliedRoom

type talliedRoom struct {
	top            int64
	live, recalled map[int64]bool
	all            map[int64]bool   // messages that mention everybody
	sender         map[int64]string // of each message
	members        map[string]*talliedMember
	// changes counts the messages and recalls that changed what members see. versions counts,
	// by user, further visible changes; when a user leaves, it gets the changes until then.
	changes  int64
	versions map[string]int64
}

type talliedMember struct {
	joined    int64 // changes of the room when the user joined
	read      int64
	mentioned map[int64]bool
}

func (t roomTally) add(e events.Event) {
	d := e.Data
	r := t[d.ConversationID]
	if r == nil {
		r = &talliedRoom{live: map[int64]bool{}, recalled: map[int64]bool{}, all: map[int64]bool{}, sender: map[int64]string{}, members: map[string]*talliedMember{}, versions: map[string]int64{}}
		t[d.ConversationID] = r
	}
	switch e.Type {
	case events.RoomJoined:
		for _, u := range d.UserIDs {
			if r.members[u] == nil {
				r.members[u] = &talliedMember{joined: r.changes, read: r.top, mentioned: map[int64]bool{}}
				r.versions[u]++
			}
		}
	case events.RoomLeft:
		for _, u := range d.UserIDs {
			if r.members[u] != nil {
				r.versions[u] = r.version(u) + 1
				delete(r.members, u)
			}
		}
	case events.RoomPosted:
		if d.Seq > r.top || !r.live[d.Seq] && !r.recalled[d.Seq] {
			r.changes++
		}
		r.top = max(r.top, d.Seq)
		r.live[d.Seq] = !r.recalled[d.Seq]
		r.all[d.Seq], r.sender[d.Seq] = d.MentionsAll, d.SenderID
		for _, u := range d.MentionedUserIDs {
			if m := r.members[u]; m != nil {
				m.mentioned[d.Seq] = true
			}
		}
	case events.RoomRecalled:
		if r.live[d.Seq] {
			r.changes++
		}
		r.recalled[d.Seq] = true
		r.live[d.Seq] = false
	case events.ConversationRead:
		for _, u := range d.UserIDs {
			if m := r.members[u]; m != nil && d.UpToSeq > m.read {
				m.read = d.UpToSeq
				r.versions[u]++
			}
		}
	default:
		panic("no event of a room: " + e.Type)
	}
}

// count is the sum of a user's unread messages and mentions.
type count struct {
	Unread   int64 `json:"total_unread"`
	Mentions int64 `json:"mentions"`
}

func (t roomTally) count() (c count) {
	for _, r := range t {
		for u := range r.members {
			of := r.count(u)
			c.Unread += of.Unread
			c.Mentions += of.Mentions
		}
	}
	return c
}

// count returns what a member has unread.
func (r *talliedRoom) count(user string) (c count) {
	m := r.members[user]
	for seq := m.read + 1; seq <= r.top; seq++ {
		if !r.live[seq] || r.sender[seq] == user {
			continue
		}
		c.Unread++
		if r.all[seq] || m.mentioned[seq] {
			c.Mentions++
		}
	}
	return c
}

// version returns how often a user saw the room change.
func (r *talliedRoom) version(user string) int64 {
	n := r.versions[user]
	if m := r.members[user]; m != nil {
		n += r.changes - m.joined
	}
	return n
}

// tallying is a target of a load that counts the events with roomTally.
type tallying struct{ roomTally }

// Append implements traffic.Target.
func (t tallying) Append(_ context.Context, evs []events.Event) (int64, error) {
	for _, e := range evs {
		t.add(e)
	}
	return 1, nil
}

// Badges implements traffic.Target.
func (t tallying) Badges(_ context.Context, users []string, _ int64) ([]pubsub.Badge, error) {
	return make([]pubsub.Badge, len(users)), nil
}

// Generated traffic of rooms is published over HTTP. The badges equal the counts with plain sets, and
// verify finds no difference.
func TestGeneratedRooms(t *testing.T) {
	t.Parallel()
	rooms := traffic.RoomTraffic{Rooms: 20, Members: 300, Messages: 1000, Seed: 7}
	want := tallying{roomTally{}}
	if _, err := traffic.Load(t.Context(), traffic.Config{Rooms: &rooms, Target: want, InFlight: 1}); err != nil {
		t.Fatal(err)
	}
	database := newDatabase(t)
	p := serve(t, database)
	for run := range 2 { // the second run changes nothing
		var got count
		decode(t, must(t, "load", "-q", "--json", fmt.Sprintf("--rooms=%d", rooms.Rooms), fmt.Sprintf("--members=%d", rooms.Members),
			fmt.Sprintf("--messages=%d", rooms.Messages), fmt.Sprintf("--seed=%d", rooms.Seed),
			"--url="+p.url, "--publisher-key="+publisherKey), &got)
		if diff := cmp.Diff(want.count(), got); diff != "" {
			t.Errorf("run %d: sums (-want +got):\n%s", run, diff)
		}
	}
	must(t, "verify", "--database-url="+database)
}

// The commands, the SQL and the program of docs/rooms.md have the documented effects.
func TestRoomsPage(t *testing.T) {
	t.Parallel()
	page := readFile(t, "../docs/rooms.md")
	example := func(language string) string {
		found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(page)
		if found == nil {
			t.Fatalf("docs/rooms.md has no %s", language)
		}
		return string(found[1])
	}
	database := oneDatabase(t)
	p := serve(t, database)
	expect := func(after string, ada, ben, chloe, eve int64) {
		t.Helper()
		expectTotals(t, p, after, map[string]int64{"ada": ada, "ben": ben, "chloe": chloe, "eve": eve})
	}

	curl := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(example("sh"), "http://127.0.0.1:8080", p.url))
	curl.Env = environment("BADGED_PUBLISHER_KEY=" + publisherKey)
	if out, err := curl.CombinedOutput(); err != nil || string(out) != `{"accepted":2}`+"\n" && string(out) != `{"accepted":2}` {
		t.Fatalf("%v\n%s", err, out)
	}
	expect("curl", 1, 0, 1, 0)

	sql(t, database, `CREATE TABLE messages (room text, seq bigint, body text)`)
	sql(t, database, example("sql"))
	expect("the SQL", 2, 0, 2, 0)

	program := exec.CommandContext(t.Context(), "go", "run", "../docs/rooms")
	program.Env = environment("DATABASE_URL=" + database)
	if out, err := program.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "eve has joined, message 3 is posted, position ") {
		t.Fatalf("%v\n%s", err, out)
	}
	expect("the program", 3, 1, 2, 1)
}

// expectTotals compares the totals of users, once they include the position after.
func expectTotals(t *testing.T, p *process, after string, want map[string]int64) {
	t.Helper()
	// The event names all the users, since a position only covers the shards to which the
	// call appended.
	users, err := json.Marshal(slices.Sorted(maps.Keys(want)))
	if err != nil {
		t.Fatal(err)
	}
	position := publish(t, p, event("after "+after, "conversation.read", `{"conversation_id":"elsewhere","up_to_seq":1,"user_ids":`+string(users)+`}`))
	for user, n := range want {
		wantTotal(t, p, user, position, n)
	}
}

// A conversation becomes a room without a change of its counts. Afterwards, invalid input has the
// effects that docs/rooms.md describes.
func TestConversationBecomesARoom(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	inRoom := func(id, typ, fields string) string {
		return event(id, typ, `{"conversation_id":"crew",`+fields+`}`)
	}
	posted := func(seq int) string {
		return inRoom(fmt.Sprint("posted ", seq), "room.posted", fmt.Sprintf(`"seq":%d,"sender_id":"ben"`, seq))
	}

	p.mustPost(
		delivered("crew", 1, `"ada","chloe"`), delivered("crew", 2, `"ada","chloe"`), delivered("crew", 3, `"ada","chloe"`),
		inRoom("read", "conversation.read", `"user_ids":["ada"],"up_to_seq":2`),
	)
	expectTotals(t, p, "the conversation", map[string]int64{"ada": 1, "chloe": 3})
	p.mustPost(inRoom("join", "room.joined", `"user_ids":["ada","ben","chloe"]`), posted(3), posted(1), posted(2))
	expectTotals(t, p, "the change", map[string]int64{"ada": 1, "ben": 0, "chloe": 3})

	conn := pgtest.Connect(t, database) // what SQL stores is not known to be bad before it is folded
	publish(t, p, inRoom("quiet", "conversation.level_set", `"user_ids":["chloe"],"level":"none"`))
	for _, step := range []struct {
		what, event      string
		ada, chloe, dora int64
	}{
		{"a message to a room without members", event("nowhere", "room.posted", `{"conversation_id":"empty","seq":1}`), 1, 0, 0},
		{"joining twice", inRoom("again", "room.joined", `"user_ids":["ada","chloe"],"level":"all"`), 1, 0, 0},
		{"leaving what one is not in", inRoom("left", "room.left", `"user_ids":["dora"]`), 1, 0, 0},
		{"mentions of others", inRoom("mentions", "room.posted", `"seq":4,"sender_id":"a stranger","mentioned_user_ids":["dora"]`), 2, 0, 0},
		{"a delivery to a member and another user", inRoom("wrong", "message.delivered", `"seq":5,"user_ids":["ada","dora"]`), 2, 0, 1},
		{"a recall for a member", inRoom("wrong too", "message.recalled", `"seq":4,"user_ids":["ada"]`), 2, 0, 1},
		{"leaving as from a conversation", inRoom("wrong again", "conversation.left", `"user_ids":["ada"]`), 2, 0, 1},
		{"leaving", inRoom("leaves", "room.left", `"user_ids":["ada"]`), 0, 0, 1},
	} {
		pgtest.Exec(t, conn, publishSQL, step.event)
		expectTotals(t, p, step.what, map[string]int64{"ada": step.ada, "chloe": step.chloe, "dora": step.dora})
	}
	letters := must(t, "deadletters", "list", "--database-url="+database)
	contains(t, letters,
		`publish room.posted instead of message.delivered`, `publish room.recalled instead of message.recalled`,
		`publish room.left instead of conversation.left`, `"ada"`,
	)
	for range polls(t, "a refusal, which needs a server that has folded everything") {
		status, _, answer := request(t, "POST", p.url+"/v1/events", "application/json", inRoom("refused", "message.delivered", `"seq":9,"user_ids":["chloe","dora"]`))
		if status == 400 {
			if want := `"message":"\"crew\" is a room of which \"chloe\" are members: publish room.posted instead of message.delivered"`; !strings.Contains(answer, want) {
				t.Errorf("the refusal is %s, want %s", answer, want)
			}
			break
		}
	}
	users := strings.TrimSuffix(strings.Repeat(`"u",`, events.MaxUsers+1), ",")
	status, _, answer := request(t, "POST", p.url+"/v1/events", "application/json", inRoom("crowd", "room.joined", `"user_ids":[`+users+`]`))
	if status != 400 || !strings.Contains(answer, "must name at most 10000 users, names 10001") {
		t.Errorf("10,001 users joined: %d %s", status, answer)
	}
}
