package cli

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/pubsub"
)

func TestPrintExplanation(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	logged := func(id, position string) replay.LoggedEvent {
		return replay.LoggedEvent{ID: id, Source: "chat", Type: "conversation.read", AppendedAt: at, Position: position}
	}
	marked, level := logged("m", "9/4"), logged("l", "9/5")
	for name, tc := range map[string]struct {
		explanation replay.Explanation
		want        string
	}{
		"with an archive": {
			replay.Explanation{UserID: "ann", Position: "9/9", ArchivedUntil: &at, Agrees: true},
			`user       ann
total      0
mentions   0
unread in  0 conversations
version    0
log        partition 0 up to 9/9

Events appended until 2026-01-31T12:00:00.000Z are archived: they are counted, but only --archive DIR can list them.

Nothing is unread.
`,
		},
		"everything": {
			replay.Explanation{
				UserID: "ann", Partition: 3, At: &at, Position: "9/9", Version: 7, Numbers: pubsub.Numbers{Total: 205, Mentions: 1, UnreadConversations: 3},
				Categories: map[string]pubsub.Numbers{"system": {Total: 4, Unseen: 4}, "chat": {Total: 201, Unseen: 201}},
				Conversations: []replay.ExplainedConversation{
					{
						Conversation: pubsub.Conversation{ConversationID: "lunch", Unread: 202, Mentions: 1, Level: "all", Category: "chat", MarkedUnread: true},
						Adds:         201, LastRead: &replay.ReadEvent{UpToSeq: 4, LoggedEvent: logged("r", "9/3")}, MarkedBy: &marked, LevelBy: &level,
						Messages:     []replay.CountedMessage{{Seq: 10, Mentioned: true, LoggedEvent: logged("e10", "9/6")}, {Seq: 9, LoggedEvent: logged("e9", "9/2")}},
						MoreMessages: 200,
					},
					{Conversation: pubsub.Conversation{ConversationID: "mute", Mentions: 2, Level: "none", LevelUntil: at.Add(time.Hour), Category: "chat"}},
				},
				MoreConversations: 1, MoreAdds: 4,
				Uncounted: []replay.UncountedEvent{
					{LoggedEvent: logged("e9", "9/7"), ConversationID: "lunch", Seq: 9, Why: replay.WhyDuplicate, Detail: "came before"},
					{LoggedEvent: replay.LoggedEvent{ID: "a-b", AppendedAt: at, Position: "9/1"}, Why: replay.WhyDeadLetter, Detail: "not understood"},
				},
				MoreUncounted: 1234, UncountedKinds: []replay.UncountedKind{
					{Type: "message.delivered", Why: replay.WhyDuplicate, Events: 1235}, {Why: replay.WhyDeadLetter, Events: 1},
				},
				History: &replay.History{Before: 3, LeftOut: 12000, Steps: []replay.Step{
					{Total: 5, Change: 2, ConversationID: "lunch", Seq: 9, LoggedEvent: logged("e9", "9/2")},
					{Total: 0, Change: -5, LeftOut: 12000, LoggedEvent: logged("all", "9/8")},
				}},
				Delivered: &replay.Delivered{More: 7, Messages: []replay.DeliveredMessage{
					{ConversationID: "lunch", Seq: 10, Fate: replay.FateUnread, LoggedEvent: logged("e10", "9/6")},
					{ConversationID: "lunch", Seq: 4, Fate: replay.FateRead, By: &level, LoggedEvent: logged("e4", "9/1")},
				}},
				Agrees: true,
			},
			`user       ann
total      205
mentions   1
  chat     201
  system   4
unread in  3 conversations
version    7
as of      2026-01-31T12:00:00.000Z
log        partition 3 up to 9/9

lunch adds 201: 202 unread, 1 mention, marked unread; level all, category chat
  read up to 4 by conversation.read r of chat, appended 2026-01-31T12:00:00.000Z at 9/3
  marked unread by conversation.read m of chat, appended 2026-01-31T12:00:00.000Z at 9/4
  level set by conversation.read l of chat, appended 2026-01-31T12:00:00.000Z at 9/5
  SEQ  MENTIONS  APPENDED                  POSITION  EVENT  SOURCE
  10   yes       2026-01-31T12:00:00.000Z  9/6       e10    chat
  9              2026-01-31T12:00:00.000Z  9/2       e9     chat
  … and 200 messages before

mute adds 0: 0 unread, 2 mentions; level none until 2026-01-31T13:00:00.000Z, category chat

… and 1 conversation more, which add 4

The total over time, from 3:
  12,000 more steps are left out between these.
  TOTAL  CHANGE  APPENDED                  POSITION  TYPE               CONVERSATION  SEQ  EVENT  SOURCE
  5      +2      2026-01-31T12:00:00.000Z  9/2       conversation.read  lunch         9    e9     chat
  0      -5      2026-01-31T12:00:00.000Z  9/8       conversation.read                     all    chat

Delivered, newest first:
  APPENDED                  POSITION  CONVERSATION  SEQ  EVENT  FATE    BY
  2026-01-31T12:00:00.000Z  9/6       lunch         10   e10    unread  
  2026-01-31T12:00:00.000Z  9/1       lunch         4    e4     read    conversation.read l of chat, appended 2026-01-31T12:00:00.000Z at 9/5
  … and 7 earlier: --before 9/1

Events that changed no count:
  APPENDED                  POSITION  TYPE               CONVERSATION  SEQ  EVENT  SOURCE  BECAUSE
  2026-01-31T12:00:00.000Z  9/7       conversation.read  lunch         9    e9     chat    came before
  2026-01-31T12:00:00.000Z  9/1                                             a-b            not understood
  … and 1,234 more; in all
  1,235  message.delivered  duplicate
  1                         dead_letter
`,
		},
		"nothing": {
			replay.Explanation{UserID: "ann", Position: "0/0", Agrees: true},
			"user       ann\ntotal      0\nmentions   0\nunread in  0 conversations\nversion    0\nlog        partition 0 up to 0/0\n\nNothing is unread.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectPrinted(t, tc.want, func(w io.Writer) error { return printExplanation(w, tc.explanation) })
		})
	}
}

func TestUserExplainUsage(t *testing.T) {
	const db = " --database-url=postgres://127.0.0.1:1/chat"
	expectUsage(t, map[string]string{
		"user explain ann":                                                 "--database-url",
		"user explain" + db:                                                "expected \"<user>\"",
		"user explain ann --at=yesterday" + db:                             "--at: must be a time",
		"user explain ann --delivered=1001" + db:                           "--delivered must be a number from 0 to 1000",
		"user explain ann --conversation=" + strings.Repeat("c", 129) + db: "--conversation must have at most 128 bytes",
		"user explain ann --before=xx --delivered=1" + db:                  "--before: ",
		"user explain ann --before=1/1" + db:                               "--before needs --delivered",
		"user explain ann --before=1/1 --delivered=0" + db:                 "--before needs --delivered",
		"user explain a\x01b" + db:                                         "must not hold control characters",
	})
}
