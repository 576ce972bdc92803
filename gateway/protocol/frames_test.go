package protocol

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/pubsub"
)

// golden returns the frames that the SDK's tests read too.
func golden(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "web", "sdk", "testdata", "frames", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestServerFramesAreGolden(t *testing.T) {
	id := json.RawMessage("1")
	designCrew := pubsub.Conversation{
		ConversationID: "design-crew", Unread: 3, Mentions: 1, FirstUnreadSeq: 40, ReadSeq: 39, LastSeq: 42,
		Level: "default", Category: "chat", Version: 57,
	}
	read := designCrew
	read.Unread, read.Mentions, read.FirstUnreadSeq, read.ReadSeq, read.Version = 0, 0, 0, 42, 59
	left := read
	left.Left, left.Version = true, 60
	cafe := pubsub.Conversation{
		ConversationID: "Café ☕", Unread: 2, FirstUnreadSeq: 9, ReadSeq: 8, LastSeq: 10, Level: "default", Category: "chat", Version: 58,
	}
	none := map[string]pubsub.Numbers{}
	empty := &pubsub.Badge{Epoch: "e1", Categories: none}
	numbers := func(total, mentions, conversations int64) pubsub.Numbers {
		return pubsub.Numbers{Total: total, Mentions: mentions, UnreadConversations: conversations, Unseen: total}
	}
	of := func(total, mentions, conversations int64) map[string]pubsub.Numbers {
		return map[string]pubsub.Numbers{"chat": numbers(total, mentions, conversations)}
	}
	muted := func(n pubsub.Numbers, total, conversations, marked int64) pubsub.Numbers {
		n.Unseen -= marked
		n.Muted, n.Marked = pubsub.Muted{Total: total, Conversations: conversations}, marked
		return n
	}
	chat := func(total, mentions, conversations int64) map[string]pubsub.Numbers {
		return map[string]pubsub.Numbers{"chat": muted(numbers(total, mentions, conversations), 5, 1, 1)}
	}
	all := func(total, mentions, conversations int64) map[string]pubsub.Numbers {
		paths := chat(total, mentions, conversations)
		paths["updates"] = muted(numbers(1, 1, 1), 11, 1, 0)
		return paths
	}
	for name, frame := range map[string]any{
		"ok":                 OKFrame{T: "ok", ID: id},
		"ok-uuid":            OKFrame{T: "ok", ID: json.RawMessage(`"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"`)},
		"ok-auth":            OKFrame{T: "ok", ID: json.RawMessage(`"auth"`), ExpiresInMS: 3_600_000},
		"error":              ErrorFrame{T: "error", ID: json.RawMessage("2"), Code: CodeUnavailable, Message: "not saved; try again", RetryMS: 1500},
		"error-rate-limited": ErrorFrame{T: "error", ID: json.RawMessage("3"), Code: CodeRateLimited, Message: "too many commands; try again", RetryMS: 501},
		"bye-too-many": ByeFrame{
			T: "bye", Code: CloseUserConnections, Reason: "you have reached the limit of connections of a user", ReconnectMS: 12000,
		},
		"ping": BareFrame{FramePing},
		"pong": BareFrame{FramePong},
		"bye":  ByeFrame{T: "bye", Code: CloseDraining, ReconnectMS: 3700},
		"snapshot-empty": SnapshotFrame{
			StateFrame: NewStateFrame("snapshot", empty, nil, true),
			Terms:      Terms{25000, 900_000},
		},
		"snapshot-muted": SnapshotFrame{
			StateFrame: NewStateFrame("snapshot", &pubsub.Badge{Epoch: "e1", Version: 9, Categories: none}, []pubsub.Conversation{
				{ConversationID: "random", ReadSeq: 24, LastSeq: 24, Level: "none", Category: "chat", Version: 9},
				{ConversationID: "releases", ReadSeq: 112, LastSeq: 112, Level: "mentions", Category: "updates", Version: 7},
			}, true),
			Terms: Terms{25000, 900_000},
		},
		"changes-many": StateFrame{
			T: "changes", Epoch: "e1", Version: 61, Numbers: muted(numbers(600, 1, 590), 16, 2, 1), Categories: all(3, 0, 2), MoreCategories: true, AllCategories: true, Conversations: []pubsub.Conversation{},
		},
		"snapshot-muted-until": SnapshotFrame{
			StateFrame: NewStateFrame("snapshot", &pubsub.Badge{
				Epoch: "e1", Version: 57, Numbers: muted(numbers(2, 0, 1), 3, 1, 0),
				Categories: map[string]pubsub.Numbers{"chat": muted(pubsub.Numbers{}, 3, 1, 0), "updates": numbers(2, 0, 1)},
			}, []pubsub.Conversation{
				{
					ConversationID: "standup", Unread: 3, Mentions: 1, FirstUnreadSeq: 5, ReadSeq: 4, LastSeq: 7,
					Level: "none", LevelUntil: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC), Category: "chat", Version: 57,
				},
				{
					ConversationID: "incident", Unread: 2, FirstUnreadSeq: 11, ReadSeq: 10, LastSeq: 12,
					Level: "all", LevelUntil: time.Date(2026, 3, 1, 18, 30, 0, 250_000_000, time.UTC), Category: "updates", Version: 56,
				},
			}, true),
			Terms: Terms{25000, 900_000},
		},
		"changes-level-ended": NewStateFrame("changes", &pubsub.Badge{
			Epoch: "e1", Version: 58, Numbers: numbers(5, 1, 2), Categories: of(3, 1, 1),
		}, []pubsub.Conversation{{
			ConversationID: "standup", Unread: 3, Mentions: 1, FirstUnreadSeq: 5, ReadSeq: 4, LastSeq: 7, Level: "default", Category: "chat", Version: 58,
		}}, false),
		"changes-none": NewStateFrame("changes", &pubsub.Badge{
			Epoch: "e1", Version: 57, Numbers: muted(numbers(6, 2, 4), 16, 2, 1), Categories: all(5, 1, 3),
		}, nil, true),
		"changes": NewStateFrame("changes", &pubsub.Badge{
			Epoch: "e1", Version: 59, Numbers: muted(numbers(4, 1, 3), 16, 2, 1), Categories: chat(3, 0, 2),
		}, []pubsub.Conversation{read, cafe}, false),
		"changes-left": NewStateFrame("changes", &pubsub.Badge{
			Epoch: "e1", Version: 60, Numbers: muted(numbers(4, 1, 3), 16, 2, 1), Categories: none,
		}, []pubsub.Conversation{left}, false),
		"changes-nested": NewStateFrame("changes", &pubsub.Badge{
			Epoch: "e1", Version: 62, Numbers: pubsub.Numbers{Total: 3, Mentions: 1, UnreadConversations: 1, Unseen: 1, Muted: pubsub.Muted{Total: 9, Conversations: 2}, Marked: 1},
			Categories: map[string]pubsub.Numbers{
				"acme": {Total: 3, Mentions: 1, UnreadConversations: 1, Unseen: 1, Muted: pubsub.Muted{Total: 9, Conversations: 2}, Marked: 1}, "acme/general": {},
			},
			Levels: map[string]string{"acme/random": "none"},
		}, []pubsub.Conversation{{
			ConversationID: "general", Unread: 3, Mentions: 1, Seen: 2, SeenMentions: 1, FirstUnreadSeq: 5, ReadSeq: 4, SeenSeq: 6, LastSeq: 7, Level: "all", Category: "acme/general", Version: 62,
		}}, false),
	} {
		b, err := json.Marshal(frame)
		if err != nil {
			t.Fatal(err)
		}
		if want := golden(t, name); string(b) != want {
			t.Errorf("%s is\n%s\nwant\n%s", name, b, want)
		}
	}
}

func TestClientFramesAreGolden(t *testing.T) {
	for name, want := range map[string]ClientFrame{
		"hello-first":    {T: "hello"},
		"hello-resume":   {T: "hello", Epoch: "e1", Version: 57},
		"ping":           {T: "ping"},
		"pong":           {T: "pong"},
		"read":           {T: "read", ID: json.RawMessage("1"), ConversationID: "design-crew", UpToSeq: 42},
		"read-large-seq": {T: "read", ID: json.RawMessage("2"), ConversationID: "snowflakes", UpToSeq: 1851234567890123777},
		"read-uuid":      {T: "read", ID: json.RawMessage(`"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"`), ConversationID: "design-crew", UpToSeq: 42},
		"read-uuid-large-seq": {
			T: "read", ID: json.RawMessage(`"5e1f0f6e-6f2b-4f0a-8a35-2f9f6f1d9b77"`),
			ConversationID: "snowflakes", UpToSeq: 1851234567890123777,
		},
		"read_all":          {T: "read_all", ID: json.RawMessage(`"3c9a1f58-93f5-4a51-8a1e-0f5d7e0f6b21"`)},
		"seen":              {T: "seen", ID: json.RawMessage(`"8a4f0d2c-3b7e-4f19-9c65-1e2d3c4b5a60"`), ConversationID: "general", UpToSeq: 9},
		"seen_all":          {T: "seen_all", ID: json.RawMessage(`"2f6b9d1e-8c4a-4e73-b5d0-7a9c8e6f1b32"`)},
		"seen_all-category": {T: "seen_all", ID: json.RawMessage(`"64c1e8f7-2a5d-4b90-8e3f-0d9b7c5a1f48"`), Category: new("acme")},
		"level":             {T: "level", ID: json.RawMessage(`"b7e2d9c4-5f10-4a8b-9d36-3c1e0f8a7b25"`), Category: new("acme/general"), Level: "none"},
		"read_all-category": {T: "read_all", ID: json.RawMessage(`"7d2e4b90-5c1d-4e0f-b3a6-9c8e7f6a5b43"`), Category: new("updates")},
		"mark_unread-from":  {T: "mark_unread", ID: json.RawMessage(`"1d8f3b52-6c0a-4f7e-b3d9-2a5c7e914f60"`), ConversationID: "town-hall", FromSeq: new(int64(9007199254740993))},
		"mark_unread-seqs":  {T: "mark_unread", ID: json.RawMessage(`"5f0a1c3e-7b2d-4c86-a1f4-0d9e8b7c6a52"`), ConversationID: "general", Seqs: []int64{41, 9007199254740993}},
		"mark_unread":       {T: "mark_unread", ID: json.RawMessage(`"c4b8e2d7-0a6f-4d39-9e15-7b3f2c1d8e64"`), ConversationID: "Café ☕"},
		"auth": {
			T: "auth", ID: json.RawMessage(`"auth"`),
			Token: "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl",
		},
	} {
		got, err := DecodeFrame([]byte(golden(t, name)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if string(got.ID) != string(want.ID) {
			t.Errorf("%s has id %s", name, got.ID)
		}
		got.ID, want.ID = nil, nil
		if a, b := mustJSON(t, got), mustJSON(t, want); a != b {
			t.Errorf("%s is %s, want %s", name, a, b)
		}
	}
}

// A seq may be a string of digits: JavaScript rounds large numbers.
func TestSeqsAsStrings(t *testing.T) {
	const large = 1851234567890123777
	for frame, want := range map[string]ClientFrame{
		`{"t":"read","conversation_id":"7","up_to_seq":"1851234567890123777"}`:          {T: "read", ConversationID: "7", UpToSeq: large},
		`{"t":"mark_unread","conversation_id":"7","seqs":[7, "1851234567890123777"]}`:   {T: "mark_unread", ConversationID: "7", Seqs: []int64{7, large}},
		`{"t":"mark_unread","conversation_id":"hall","from_seq":"1851234567890123777"}`: {T: "mark_unread", ConversationID: "hall", FromSeq: new(int64(large))},
	} {
		got, err := DecodeFrame([]byte(frame))
		if a, b := mustJSON(t, got), mustJSON(t, want); a != b || err != nil {
			t.Errorf("%s is %s, %v; want %s", frame, a, err, b)
		}
	}
	for _, seq := range []string{`"x"`, `""`, `"007"`, `"1.0"`, `" 1"`, `"99999999999999999999"`} {
		if _, err := DecodeFrame([]byte(`{"t":"read","conversation_id":"c","up_to_seq":` + seq + `}`)); err == nil || !strings.Contains(err.Error(), "field up_to_seq: a seq must be a whole number from 1 to 9223372036854775807, or its digits in a string; the field is "+seq) {
			t.Errorf("up_to_seq %s is answered with %v", seq, err)
		}
	}
}

// Only frames with a token may be long. Other long frames get an error, so that a command that is
// too long does not end the connection.
func TestLongFrames(t *testing.T) {
	for typ, want := range map[string]string{
		FrameHello: "", FrameAuth: "", FrameRead: "frame has 4097 bytes; at most 4096 are allowed", "frobnicate": "frame has 4097 bytes; at most 4096 are allowed",
	} {
		frame := func(size int) []byte {
			begin := `{"t":"` + typ + `","id":7,"up_to_seq":1,"conversation_id":"`
			return []byte(begin + strings.Repeat("x", size-len(begin)-len(`"}`)) + `"}`)
		}
		if _, err := DecodeFrame(frame(MaxFrameBytes)); err != nil {
			t.Errorf("a %s of the most bytes: %v", typ, err)
		}
		f, err := DecodeFrame(frame(MaxFrameBytes + 1))
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want || string(f.ID) != "7" {
			t.Errorf("a long %s under the id %s: %v, want %q", typ, f.ID, err, want)
		}
	}
}

// A command has only its own fields, by their exact names, each at most once and not null: if a
// field was ignored, the command could do more. Other frames may have more fields.
func TestCommandsHaveOnlyTheirFields(t *testing.T) {
	const conversation = `"conversation_id":"tea",`
	for _, tc := range []struct{ frame, says string }{
		{`{"t":"read_all","id":7,"categorie":"x"}`, `read_all has no field "categorie": it may have t, id, category`},
		{`{"t":"read_all","id":7,"Category":"x"}`, `read_all has no field "Category": it may have t, id, category`},
		{`{"t":"read_all","id":7,"category":null}`, "field category must not be null: leave out what you do not give"},
		{`{"t":"read_all","id":7,"category":"x","category":"y"}`, "field category is given twice"},
		{`{"t":"read_all","id":7,"conversation_id":"tea"}`, `read_all has no field "conversation_id": it may have t, id, category`},
		{`{"t":"read",` + conversation + `"id":7,"up_to_seq":1,"UP_TO_SEQ":9}`, `read has no field "UP_TO_SEQ": it may have t, conversation_id, up_to_seq, id`},
		{`{"t":"read",` + conversation + `"id":7,"up_to_seq":1,"seqs":[1]}`, `read has no field "seqs": it may have t, conversation_id, up_to_seq, id`},
		{`{"t":"mark_unread",` + conversation + `"id":7,"seq":[1]}`, `mark_unread has no field "seq": it may have t, conversation_id, id, seqs, from_seq`},
		{`{"t":"mark_unread",` + conversation + `"id":7,"from_seq":null}`, "field from_seq must not be null: leave out what you do not give"},
		{`{"t":"read","t":"read_all","id":7}`, "field t is given twice"},
		{`{"t":"read_all","id":7,"` + strings.Repeat("x", 200) + `":1}`, `read_all has no field "` + strings.Repeat("x", 40) + `": it may have t, id, category`},
		{`{"T":"read_all","id":7}`, "frame has no type t"},
		{`{"t":"hello","id":7,"mood":"fine","Version":5,"epoch":"e","epoch":null}`, ""},
		{`{"t":"auth","id":7,"token":"x","mood":null}`, ""},
		{`{"t":"ping","id":7,"mood":"fine"}`, ""},
		{`{"t":"pong","id":7,"mood":"fine"}`, ""},
	} {
		f, err := DecodeFrame([]byte(tc.frame))
		if got := fmt.Sprint(err); tc.says == "" && err != nil || tc.says != "" && got != tc.says || string(f.ID) != "7" || f.Version != 0 {
			t.Errorf("%s is decoded to %+v, %v, want %q", tc.frame, f, err, tc.says)
		}
	}
	for _, info := range ClientFrames() {
		for _, field := range slices.Concat(info.Required, info.Optional) {
			if fields := new(ClientFrame).fields(); fields[field] == nil {
				t.Errorf("the field %s of %s is not decoded", field, info.T)
			}
		}
	}
}

// An id has at most 128 bytes, without its quotes and escapes.
func TestLongIDs(t *testing.T) {
	const long = "id has more than 128 bytes"
	for id, want := range map[string]string{
		`"` + strings.Repeat("x", 128) + `"`:           "",
		`"` + strings.Repeat("x", 129) + `"`:           long,
		`"` + strings.Repeat("é", 64) + `"`:            "",
		`"` + strings.Repeat("é", 64) + `x"`:           long,
		`"` + strings.Repeat(`\u00e9`, 64) + `"`:       "",
		`"` + strings.Repeat(`\u00e9`, 64) + `x"`:      long,
		`"` + strings.Repeat(`\ud83d\ude00`, 32) + `"`: "",
		`"` + strings.Repeat(`\ud83d\ude00`, 33) + `"`: long,
		`"` + strings.Repeat(`\"`, 128) + `"`:          "",
		`"` + strings.Repeat(`\"`, 129) + `"`:          long,
		strings.Repeat("1", 128):                       "",
		strings.Repeat("1", 129):                       long,
	} {
		f, err := DecodeFrame([]byte(`{"t":"read_all","id":` + id + `}`))
		if want == "" && (err != nil || string(f.ID) != id) || want != "" && (fmt.Sprint(err) != want || f.ID != nil) {
			t.Errorf("the id %s is decoded to %s, %v, want %q", id, f.ID, err, want)
		}
	}
}

// A text that is not valid Unicode is refused in every field: if it was decoded, each invalid
// byte and each half of a surrogate pair would become U+FFFD, and the frame would name another
// conversation, category or user.
func TestFramesAreUnicode(t *testing.T) {
	for _, info := range ClientFrames() {
		for _, field := range slices.Concat(info.Required, info.Optional) {
			for _, text := range []string{"x\xff", "\xed\xa0\x80", `x\ud800`, `\udc00x`, `\ud800\ud800`} {
				value := `"` + text + `"`
				if field == "seqs" {
					value = "[" + value + "]"
				}
				frame := `{"t":"` + info.T + `","id":7,"` + field + `":` + value + `}`
				if field == "t" || field == "id" {
					frame = `{"` + field + `":` + value + `}`
				}
				want := "field " + field + " must be UTF-8, without halves of surrogate pairs"
				f, err := DecodeFrame([]byte(frame))
				if fmt.Sprint(err) != want || field != "t" && field != "id" && string(f.ID) != "7" || field == "id" && f.ID != nil {
					t.Errorf("%q is decoded to %+v, %v, want %q", frame, f, err, want)
				}
			}
		}
	}
	if f, err := DecodeFrame([]byte(`{"t":"read","conversation_id":"\ud83d\ude00 \ufffd","up_to_seq":1}`)); err != nil || f.ConversationID != "😀 \ufffd" {
		t.Errorf("a whole surrogate pair is decoded to %+v, %v", f, err)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every input decodes to a frame or to a clear error, and every id in the result can be repeated
// in an answer.
func FuzzDecodeFrame(f *testing.F) {
	for _, name := range []string{"hello", "hello-first", "hello-resume", "ping", "pong", "read", "read-large-seq"} {
		f.Add([]byte(golden(f, name)))
	}
	for _, s := range []string{``, `{}`, `[]`, `null`, `{"t":1}`, `{"t":"read","id":{}}`, `{"t":"read","id":"` + strings.Repeat("x", 200) + `"}`, "{\"t\":\"\xff\"}", `{"t":"read","up_to_seq":1e400}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := DecodeFrame(b)
		if err != nil {
			if err.Error() == "" || len(err.Error()) > 200 {
				t.Errorf("%q is refused with %q", b, err)
			}
		} else if frame.T == "" {
			t.Errorf("%q was taken without a type", b)
		}
		if _, err := json.Marshal(ErrorFrame{T: "error", ID: frame.ID}); err != nil {
			t.Errorf("%q: the id cannot be echoed: %v", b, err)
		}
	})
}
