package traffic

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
)

// tell describes events, one per line.
func tell(evs []events.Event) string {
	var b strings.Builder
	for _, e := range evs {
		d := e.Data
		switch e.Type {
		case events.MessageDelivered:
			fmt.Fprintf(&b, "%s: %d from %s to %s\n", d.ConversationID, d.Seq, d.SenderID, strings.Join(d.UserIDs, ","))
		case events.ConversationRead:
			fmt.Fprintf(&b, "%s: %s reads up to %d\n", d.ConversationID, strings.Join(d.UserIDs, ","), d.UpToSeq)
		default:
			fmt.Fprintf(&b, "%s\n", e.Type)
		}
	}
	return b.String()
}

// readAll returns the events of a traffic file.
func readAll(t *testing.T, content string) []events.Event {
	t.Helper()
	evs, err := readEvents(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return evs
}

func readEvents(r io.Reader) ([]events.Event, error) {
	var evs []events.Event
	reader := NewReader("traffic", r)
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return evs, nil
		}
		if err != nil {
			return evs, err
		}
		evs = append(evs, record.Event)
	}
}

func TestMappingStories(t *testing.T) {
	for _, tt := range []struct{ name, messages, want string }{
		{
			name:     "a message without an answer",
			messages: "ann bob 10",
			want:     "ann:bob: 1 from ann to bob\n",
		},
		{
			name:     "an answer reads what came before",
			messages: "ann bob 10\nann bob 11\nbob ann 12",
			want: `ann:bob: 1 from ann to bob
ann:bob: 2 from ann to bob
ann:bob: bob reads up to 2
ann:bob: 3 from bob to ann
`,
		},
		{
			name:     "a second answer in a row reads up to the first",
			messages: "ann bob 10\nbob ann 11\nbob ann 12\nann bob 13",
			want: `ann:bob: 1 from ann to bob
ann:bob: bob reads up to 1
ann:bob: 2 from bob to ann
ann:bob: bob reads up to 2
ann:bob: 3 from bob to ann
ann:bob: ann reads up to 3
ann:bob: 4 from ann to bob
`,
		},
		{
			name:     "conversations do not mix",
			messages: "ann bob 10\nbob cem 11\ncem ann 12",
			want: `ann:bob: 1 from ann to bob
bob:cem: 1 from bob to cem
ann:cem: 1 from cem to ann
`,
		},
		{
			name:     "a message to oneself reaches and is answered by no one",
			messages: "ann ann 10\nann ann 11",
			want:     "ann:ann: 1 from ann to ann\nann:ann: 2 from ann to ann\n",
		},
		{
			name:     "the order of the file counts, not the time",
			messages: "ann bob 20\nbob ann 10",
			want: `ann:bob: 1 from ann to bob
ann:bob: bob reads up to 1
ann:bob: 2 from bob to ann
`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tell(readAll(t, tt.messages))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMappingMakesValidEvents(t *testing.T) {
	long := strings.Repeat("x", events.MaxIDBytes)
	for _, e := range readAll(t, "a b 0\nb a 253402300799\n"+long+" "+long[1:]+"\" 5\n") {
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", tell([]events.Event{e}), err)
		}
		if e.Source != Source {
			t.Errorf("source is %q", e.Source)
		}
	}
}

func TestConversationIDsDoNotCollide(t *testing.T) {
	long := strings.Repeat("x", events.MaxIDBytes)
	hash := strings.TrimPrefix(pairOf("a:b", "c").conversationID(), "pair-")
	seen := map[string]pair{}
	for _, users := range [][2]string{
		{"a", "b"},
		{"a:b", "c"},
		{"a", "b:c"},
		{":", ":"},
		{"", "::"},
		{long, "a"},
		{long, "b"},
		{long, long},
		{"pair-" + hash, "a"},
		{"pair", hash},
	} {
		p := pairOf(users[0], users[1])
		if p != pairOf(users[1], users[0]) {
			t.Errorf("the pair of %q depends on their order", users)
		}
		id := p.conversationID()
		if reason := events.CheckID(id); reason != "" {
			t.Errorf("conversation of %q: %s", users, reason)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%q and %q share the conversation %s", p, other, id)
		}
		seen[id] = p
	}
}

func TestEventIDs(t *testing.T) {
	ids := func(messages string) []string {
		var ids []string
		for _, e := range readAll(t, messages) {
			ids = append(ids, e.ID)
		}
		return ids
	}
	const file = "a b 1\nb a 2\na b 3\n"
	base := ids(file)
	unique := map[string]bool{}
	for _, id := range base {
		unique[id] = true
	}
	if len(unique) != 5 {
		t.Errorf("ids are not unique: %q", base)
	}
	t.Run("the same for the same file with any line ends", func(t *testing.T) {
		if diff := cmp.Diff(base, ids(strings.ReplaceAll(file, "\n", "\r\n"))); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("the same for a file that grew", func(t *testing.T) {
		if diff := cmp.Diff(base, ids(file + "b a 4\n")[:5]); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("another for an event that differs", func(t *testing.T) {
		for _, other := range []string{
			"x b 1\nb a 2\na b 3\n", // the last line gets another seq
			"a b 1\nb a 2\na b 4\n",
			"\na b 1\nb a 2\na b 3\n",
		} {
			got := ids(other)
			if got[len(got)-1] == base[len(base)-1] {
				t.Errorf("%q: the last event has the same id", other)
			}
		}
	})
}

// TestCollegeMsg loads real traffic: the SNAP data set CollegeMsg, which may
// not be distributed with badged.
func TestCollegeMsg(t *testing.T) {
	path := os.Getenv("BADGED_COLLEGEMSG")
	if path == "" {
		t.Skip("set BADGED_COLLEGEMSG to the path of CollegeMsg.txt, from https://snap.stanford.edu/data/CollegeMsg.html")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	unread := expectedUnread(t, f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	target := newModel()
	got, err := Load(t.Context(), Config{File: path, Target: target})
	if err != nil {
		t.Fatal(err)
	}
	users, withUnread, total := sums(unread)
	want := Summary{
		File: path, Messages: 59_835, Reads: 36_126, Events: 95_961,
		Users: 1_899, UsersWithUnread: withUnread, TotalUnread: total,
	}
	if users != want.Users {
		t.Fatalf("the file has %d users", users)
	}
	if diff := cmp.Diff(want, withoutTimes(got)); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if target.repeated > 0 {
		t.Errorf("%d events share an id with another", target.repeated)
	}
	checkBadges(t, target, unread)
}

// checkBadges compares the badges of a target with the final unread counts.
func checkBadges(t *testing.T, target *model, unread map[string]int64) {
	t.Helper()
	for user, want := range unread {
		badges, err := target.Badges(t.Context(), []string{user}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if badges[0].Total != want {
			t.Errorf("user %s has %d unread, want %d", user, badges[0].Total, want)
		}
	}
}

// withoutTimes returns s without the fields that differ between runs.
func withoutTimes(s Summary) Summary {
	s.PublishSeconds, s.FoldSeconds, s.PublishedPerSecond, s.FoldedPerSecond = 0, 0, 0, 0
	return s
}
