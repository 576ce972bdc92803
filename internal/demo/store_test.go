package demo

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

func TestSendStoresAndPublishes(t *testing.T) {
	f := newFixture(t)
	f.wakes.take()
	before := f.published(t)
	f.mustSend(t, "design-crew", "ada", "Morning!")
	m := f.mustSend(t, "design-crew", "ben", "@Ada @ben @Chloé can you look?")
	if m.Seq != 2 || m.SenderID != "ben" || m.Time.IsZero() || !slices.Equal(m.MentionedUserIDs, []string{"ada", "chloe"}) {
		t.Errorf("message is %+v, want seq 2 that mentions ada and chloe", m)
	}

	got := f.published(t)
	for id := range before {
		delete(got, id)
	}
	for id, e := range got {
		e.Time = m.Time
		got[id] = e
	}
	want := map[string]events.Event{
		"design-crew/1": {
			ID: "design-crew/1", Source: eventSource, Type: events.MessageDelivered, Time: m.Time,
			Data: events.Data{ConversationID: "design-crew", Seq: 1, SenderID: "ada", Category: "acme/design", UserIDs: []string{"ben", "chloe", "dev"}},
		},
		// A sender has read the messages before.
		"design-crew/2/read": {
			ID: "design-crew/2/read", Source: eventSource, Type: events.ConversationRead, Time: m.Time,
			Data: events.Data{ConversationID: "design-crew", UpToSeq: 1, UserIDs: []string{"ben"}},
		},
		"design-crew/2": {
			ID: "design-crew/2", Source: eventSource, Type: events.MessageDelivered, Time: m.Time,
			Data: events.Data{
				ConversationID: "design-crew", Seq: 2, SenderID: "ben", Category: "acme/design",
				UserIDs: []string{"ada", "chloe", "dev"}, MentionedUserIDs: []string{"ada", "chloe"},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
	woken := f.wakes.take()
	for _, userID := range []string{"ada", "ben", "chloe", "dev"} {
		if !slices.Contains(woken, f.log.PartitionOf(userID)) {
			t.Errorf("the partition of %s is not woken: %v", userID, woken)
		}
	}
}

func TestSendIsAllOrNothing(t *testing.T) {
	for _, test := range []struct {
		name string
		// spoil makes sending to a room fail.
		spoil func(t *testing.T, f *fixture, c *conversation)
	}{
		{"no such conversation", func(_ *testing.T, _ *fixture, c *conversation) { c.ConversationID = "nowhere" }},
		{"the log refuses after the message is stored", func(t *testing.T, f *fixture, c *conversation) {
			c.ConversationID = "\x01"
			f.exec(t, `INSERT INTO demo.conversations VALUES ($1, 0)`, c.ConversationID)
		}},
		{"the commit fails after both", func(t *testing.T, f *fixture, _ *conversation) {
			f.exec(t, `CREATE FUNCTION demo.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'`)
			f.exec(t, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON demo.messages
				DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION demo.refuse()`)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			before := f.published(t)
			f.wakes.take()
			c := mustConversation(t, "design-crew")
			test.spoil(t, f, &c)
			if m, err := f.store.send(t.Context(), c, "ada", "Morning!"); err == nil {
				t.Fatalf("sent %+v", m)
			}
			if n := f.count(t, `SELECT count(*) FROM demo.messages`); n != 0 {
				t.Errorf("%d messages are stored", n)
			}
			if n := f.count(t, `SELECT sum(last_seq) FROM demo.conversations`); n != 0 {
				t.Errorf("%d seqs are taken", n)
			}
			if diff := cmp.Diff(before, f.published(t)); diff != "" {
				t.Errorf("published (-before +after):\n%s", diff)
			}
			if woken := f.wakes.take(); len(woken) > 0 {
				t.Errorf("woken are %v", woken)
			}
		})
	}
}

func TestSendFromTheBotReadsNothing(t *testing.T) {
	f := newFixture(t)
	f.mustSend(t, "releases", bot, "Web 4.1 is out")
	f.mustSend(t, "releases", bot, "Web 4.2 is out")
	got := f.published(t)
	if _, ok := got["releases/2/read"]; ok {
		t.Error("the bot reads")
	}
	e := got["releases/2"]
	if e.Data.Category != "bell/releases" || !slices.Equal(e.Data.UserIDs, []string{"ada", "ben", "chloe", "dev"}) {
		t.Errorf("published %+v, want an update for all", e)
	}
}

func TestRecent(t *testing.T) {
	f := newFixture(t)
	if messages, err := f.store.recent(t.Context()); err != nil || len(messages) != 0 {
		t.Errorf("of nothing: %v, %v", messages, err)
	}
	want := []message{}
	for range 31 {
		want = append(want, f.mustSend(t, "lunch", "ada", "Lunch?"))
	}
	want = append(want[1:], f.mustSend(t, "design-crew", "ben", "@Ada look"))
	got, err := f.store.recent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the last 30 of each, oldest first (-want +got):\n%s", diff)
	}
}

func TestRestartKeepsMessages(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	f := fixtureOn(t, url)
	m := f.mustSend(t, "lunch", "ada", "Lunch?")
	before := f.published(t)
	f = fixtureOn(t, url)
	if next := f.mustSend(t, "lunch", "ben", "Yes"); next.Seq != m.Seq+1 {
		t.Errorf("the next message has seq %d, want %d", next.Seq, m.Seq+1)
	}
	// Events published at the start have fixed ids, so they count once.
	for id := range before {
		if _, ok := f.published(t)[id]; !ok {
			t.Errorf("%s is gone", id)
		}
	}
	if n := len(f.published(t)); n != len(before)+2 {
		t.Errorf("%d events, want the %d from before, a read and a message", n, len(before))
	}
}

func TestPeopleAndConversations(t *testing.T) {
	for _, c := range conversations() {
		e := events.Event{
			ID: "1", Source: eventSource, Type: events.MessageDelivered,
			Data: events.Data{ConversationID: c.ConversationID, Seq: 1, UserIDs: c.Members, Category: c.Category},
		}
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", c.ConversationID, err)
		}
		// The page posts to the town hall and its copy.
		if isHall := c.ConversationID == townHall || c.ConversationID == copied; len(c.lines) == 0 || isHall != (c.weight == 0) {
			t.Errorf("%s: the simulation must talk here, unless it is the town hall", c.ConversationID)
		}
		for _, line := range c.lines {
			if len(line) > maxTextBytes {
				t.Errorf("%s: %q is too long for the demo", c.ConversationID, line)
			}
			for _, m := range mention.FindAllString(line, -1) {
				if len(mentionedIn(m, c.Members)) != 1 {
					t.Errorf("%s: %q mentions %s, who is not a member", c.ConversationID, line, m)
				}
			}
		}
	}
}

func TestMentions(t *testing.T) {
	all := []string{"ada", "ben", "chloe", "dev"}
	for text, want := range map[string]string{
		"":                          "",
		"hello Ada":                 "",
		"@Ada look":                 "ada",
		"look, @ada!":               "ada",
		"@Chloé and @DEV":           "chloe dev",
		"@Ada @Ada @ada":            "ada",
		"@Eve":                      "",
		"@Adalbert":                 "",
		"ada@example.com, @ ada, @": "",
	} {
		if got := strings.Join(mentionedIn(text, all), " "); got != want {
			t.Errorf("%q mentions %q, want %q", text, got, want)
		}
	}
	if got := mentionedIn("@Dev", []string{"ada", "ben"}); len(got) > 0 {
		t.Errorf("%v is mentioned where it is not", got)
	}
}
