package importing

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/traffic"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// rowsOf returns the rows of a fixture.
func rowsOf(t *testing.T, format Format, file string) (rows []Row) {
	t.Helper()
	inputs := []input{{name: file, path: "testdata/" + file, format: format}}
	if format == Mattermost {
		if err := readChannels(t.Context(), inputs, func(int64) {}); err != nil {
			t.Fatal(err)
		}
	}
	err := each(t.Context(), inputs, func(_ *input, row *Row, _ int64) error {
		if len(row.Mentions) == 0 {
			row.Mentions = nil
		}
		rows = append(rows, *row)
		return nil
	}, func(line *traffic.LineError) { t.Error(line) })
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// What is unread follows from the posts of others after the last visit. What the system
// said does not count.
func TestMattermost(t *testing.T) {
	want := []Row{
		{
			Line: 4, UserID: "ada", ConversationID: "crew/tea", ReadSeq: 1769846400000, LastSeq: 1769846470000,
			Unread: []int64{1769846450000}, Mentions: []int64{1769846450000}, Level: events.LevelDefault, Category: "crew/tea",
		},
		{
			Line: 5, UserID: "ben", ConversationID: "crew/tea", ReadSeq: 1769846460000, LastSeq: 1769846470000,
			Unread: []int64{1769846470000}, Level: events.LevelMentions, Category: "crew/tea",
		},
		{Line: 11, UserID: "ada", ConversationID: "@ada,chloe", ReadSeq: 1769846500000, LastSeq: 1769846490000, Level: events.LevelDefault, Category: "chat"},
		{
			Line: 11, UserID: "chloe", ConversationID: "@ada,chloe", LastSeq: 1769846490000,
			Unread: []int64{1769846490000}, Mentions: []int64{1769846490000}, Level: events.LevelDefault, Category: "chat",
		},
	}
	if diff := cmp.Diff(want, rowsOf(t, Mattermost, "mattermost.jsonl")); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// It counts unread messages, and their seqs follow the last visit. A room with messages
// that do not count is marked.
func TestRocketChat(t *testing.T) {
	const ls = 1769846400000
	want := []Row{
		{
			Line: 1, UserID: "ada1", ConversationID: "GENERAL", ReadSeq: ls, LastSeq: ls + 3,
			Unread: []int64{ls + 1, ls + 2, ls + 3}, Mentions: []int64{ls + 3}, Level: events.LevelDefault, Category: "chat",
		},
		{Line: 2, UserID: "ben1", ConversationID: "GENERAL", ReadSeq: ls, LastSeq: ls, MarkedUnread: true, Level: events.LevelDefault, Category: "chat"},
		{Line: 3, UserID: "ada1", ConversationID: "ada1ben1", ReadSeq: ls, LastSeq: ls, Level: events.LevelMentions, Category: "chat"},
		{Line: 4, UserID: "ada1", ConversationID: "tea9", ReadSeq: ls, LastSeq: ls, Level: events.LevelDefault, Category: "team7/tea9"},
	}
	if diff := cmp.Diff(want, rowsOf(t, RocketChat, "rocketchat.ndjson")); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Either export through real tables, twice.
func TestImportOfExports(t *testing.T) {
	d := projectortest.New(t)
	for format, totals := range map[Format]map[string]int64{
		Mattermost: {"ada": 1, "ben": 0, "chloe": 1},
		RocketChat: {"ada1": 3, "ben1": 1},
	} {
		file := map[Format]string{Mattermost: "testdata/mattermost.jsonl", RocketChat: "testdata/rocketchat.ndjson"}[format]
		for again := range 2 {
			got, differences, err := run(t, d, func(c *Config) { c.Files, c.Format = []string{file}, format })
			if err != nil || differences != nil || (got.Events == 0) != (again == 1) {
				t.Errorf("%s: error %v, differences %q, %+v", format, err, differences, got)
			}
		}
		for user, want := range totals {
			if b := d.Badge(t, user); b.Total != want {
				t.Errorf("%s: the badge of %s is %+v, want %d", format, user, b, want)
			}
		}
	}
}

// What the other system shows no number for is left out, and counted by the reason.
func TestExportsLeaveOut(t *testing.T) {
	const at = `{"$date":"2026-01-31T08:00:00Z"}`
	for format, test := range map[Format]struct {
		text string
		want map[string]int64
	}{
		Mattermost: {
			`{"type":"channel","channel":{"team":"crew","name":"old","deleted_at":5}}
{"type":"channel","channel":{"team":"crew","name":"older","delete_at":5}}
{"type":"user","user":{"username":"ada","teams":[{"name":"crew","channels":[{"name":"old","last_viewed_at":1},{"name":"older","last_viewed_at":1},{"name":"tea"},{"name":"new","last_viewed_at":0},{"name":"gone","last_viewed_at":0}]}]}}
{"type":"user","user":{"username":"ben","delete_at":7,"teams":[{"name":"crew","channels":[{"name":"new","last_viewed_at":1}]}]}}
{"type":"direct_channel","direct_channel":{"participants":[{"username":"ada"},{"username":"eve","last_viewed_at":0}]}}
{"type":"post","post":{"team":"crew","channel":"old","user":"eve","create_at":9}}
{"type":"post","post":{"team":"crew","channel":"older","user":"eve","create_at":9}}
{"type":"post","post":{"team":"crew","channel":"tea","user":"eve","create_at":9}}
{"type":"post","post":{"team":"crew","channel":"new","user":"eve","create_at":9}}
{"type":"post","post":{"team":"crew","channel":"gone","user":"eve","create_at":9,"delete_at":10}}
`,
			map[string]int64{leftChannel: 2, leftUser: 1, leftViewed: 2},
		},
		RocketChat: {
			`{"rid":"a","u":{"_id":"ada"},"ls":` + at + `,"unread":1,"open":true,"archived":false}
{"rid":"b","u":{"_id":"ada"},"ls":` + at + `,"unread":2,"open":true,"archived":true}
{"rid":"c","u":{"_id":"ada"},"ls":` + at + `,"unread":3,"alert":true,"open":false}
`,
			map[string]int64{"of archived rooms": 1, "of rooms that the user has hidden": 1},
		},
	} {
		t.Run(string(format), func(t *testing.T) {
			d := projectortest.New(t)
			got, differences, err := run(t, d, func(c *Config) { c.Format = format }, test.text)
			if diff := cmp.Diff(test.want, got.LeftOut); diff != "" || err != nil || differences != nil {
				t.Errorf("error %v, differences %q, left out (-want +got):\n%s", err, differences, diff)
			}
			if b := d.Badge(t, "ada"); b.Total != 1 {
				t.Errorf("the badge is %+v, want 1", b)
			}
		})
	}
}

func TestBadLinesOfExports(t *testing.T) {
	for _, test := range []struct {
		format     Format
		line, want string
	}{
		{Mattermost, `{"user":{}}`, "type: is required"},
		{Mattermost, `user_id,last_seq`, "line: is not a line of a bulk export of Mattermost"},
		{Mattermost, `{"type":"user","user":{"username":"","teams":[{"name":"crew","channels":[{"name":"tea","last_viewed_at":1}]}]}}`, "user_id: must not be empty"},
		{RocketChat, `[{"rid":"a"}]`, "line: is not a document of the subscriptions as mongoexport writes it, without --jsonArray"},
		{RocketChat, `{"rid":"a","ls":{"$date":"2026-01-31T08:00:00Z"},"unread":1}`, "u._id: is required"},
		{RocketChat, `{"u":{"_id":"a"},"ls":{"$date":"2026-01-31T08:00:00Z"},"unread":1}`, "rid: is required"},
		{RocketChat, `{"u":{"_id":"a"},"rid":"b","unread":1}`, "ls: is required, or ts"},
		{RocketChat, `{"u":{"_id":"a"},"rid":"b","ls":"yesterday"}`, "line: is not a document"},
		{RocketChat, `{"u":{"_id":"a"},"rid":"b","ls":{"$date":"2026-01-31T08:00:00Z"},"unread":-1}`, "unread: must be 0 or more, is -1"},
	} {
		_, err := NewReader(strings.NewReader(test.line), test.format, nil).Next()
		if field := new(FieldError); !errors.As(err, &field) || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want %s", test.line, err, test.want)
		}
	}
}

// Of a busy channel only the newest posts are kept.
func TestPostsAreBounded(t *testing.T) {
	all := posts{}
	for i := range 5 * MaxUnread {
		all.add("busy", &exportedPost{CreateAt: int64(i + 1), User: "ada"})
		if len(all["busy"]) > 2*MaxUnread {
			t.Fatalf("%d posts are kept", len(all["busy"]))
		}
	}
	all.cut("busy")
	if n := len(all["busy"]); n != MaxUnread || all["busy"][n-1].createdAt != 5*MaxUnread {
		t.Errorf("%d posts are kept, the last %+v", n, all["busy"][n-1])
	}
	if id := directID([]string{strings.Repeat("b", 100), strings.Repeat("a", 100)}); len(id) != 65 {
		t.Errorf("the id of long names is %s", id)
	}
}
