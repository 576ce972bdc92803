package projectortest

import (
	"fmt"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
)

// Corruption corrupts rows of a user in a database made by NewForCorruptions. SQL is the statement;
// its parameter $1 is the user. Want has the differences that a comparison with the log must then
// report.
type Corruption struct {
	Name, SQL string
	Want      []string // USER stands for the quoted user id
}

// Corruptions returns a corruption of each column, and missing and superfluous rows.
func Corruptions() []Corruption {
	const inC = `user USER, conversation "c": `
	all := []Corruption{
		{"a missing conversation", `DELETE FROM badged.conversations WHERE user_id = $1 AND conversation_id = 'c'`, []string{inC + `the row is absent in the table, present by the log`}},
		{"a missing user", `DELETE FROM badged.users WHERE user_id = $1`, []string{`user USER: the row is absent in the table, present by the log`}},
	}
	for _, id := range []string{"zombie", "looked at"} { // an event names the second conversation, but changes nothing
		all = append(all, Corruption{
			"conversation " + id, `INSERT INTO badged.conversations SELECT (jsonb_populate_record(c, '{"conversation_id": "` + id + `"}')).*
FROM badged.conversations AS c WHERE user_id = $1 AND conversation_id = 'c'`,
			[]string{`user USER, conversation "` + id + `": the row is present in the table, absent by the log`},
		})
	}
	for _, c := range []struct{ column, value, table, log string }{
		{"unread", "7", "7", "3"},
		{"mentions", "2", "2", "1"},
		{"unread_set", `'\x0002010200'`, "{[2,4),[5,6)}", "{[2,5)}"},
		{"mention_set", `'\x000300'`, "{[3,4)}", "{[2,3)}"},
		{"mention_set", `'\x01020001000400'`, "1 of [2,2] and {[4,5)}", "{[2,3)}"},
		{"mention_set", `'\x0003'`, `\x0003`, "{[2,3)}"}, // cannot be decoded
		{"recalled_set", "NULL", "{}", "{[9,10)}"},
		{"again_set", `'\x000100'`, "{[1,2)}", "{}"},
		{"read_seq", "0", "0", "1"},
		{"last_seq", "5", "5", "4"},
		{"left_seq", "4", "4", "empty"},
		{"level", "'none'", "none", "default"},
		{"level_until", "1000", "1000", "empty"},
		{"level_after", "'mentions'", "mentions", "empty"},
		{"marked_unread", "true", "true", "false"},
		{"seen_seq", "3", "3", "empty"},
		{"unseen", "'{1,0}'", "{1,0}", "empty"},
		{"named", "1", "1", "empty"},
		{"category", "'likes'", "likes", "chat"},
		{"version", "1", "1", "5"},
	} {
		all = append(all, Corruption{
			c.column + " of a conversation",
			`UPDATE badged.conversations SET ` + c.column + ` = ` + c.value + ` WHERE user_id = $1 AND conversation_id = 'c'`,
			[]string{inC + c.column + ` is ` + c.table + ` in the table, ` + c.log + ` by the log`},
		})
	}
	for _, c := range []struct{ column, value, table, log string }{
		{"total", "9", "9", "4"},
		{"mentions", "0", "0", "1"},
		{"categories", `'{"likes": [2, 1], "chat": [3, 1, 1]}'`, `{"chat":[3, 1, 1],"likes":[2, 1]}`, `{"chat":[3, 1, 1],"likes":[1, 1]}`},
		{"categories", `'{"likes": [1, 1, 0, 0, 0, 0, 0, "none"], "chat": [3, 1, 1]}'`, `{"chat":[3, 1, 1],"likes":[1, 1, 0, 0, 0, 0, 0, "none"]}`, `{"chat":[3, 1, 1],"likes":[1, 1]}`},
		{"categories", `'[]'`, `[]`, `{"chat":[3, 1, 1],"likes":[1, 1]}`},
		{"unread_conversations", "3", "3", "2"},
		{"extra", `'[1, 0, 0, 0]'`, `[1, 0, 0, 0]`, "empty"},
		{"version", "9", "9", "8"},
		{"version", "5", "5", "8"},
	} {
		all = append(all, Corruption{
			c.column + " of a user, " + c.table, `UPDATE badged.users SET ` + c.column + ` = ` + c.value + ` WHERE user_id = $1`,
			[]string{`user USER: ` + c.column + ` is ` + c.table + ` in the table, ` + c.log + ` by the log`},
		})
	}
	return all
}

// NewForCorruptions returns a database with a folded history. ann is the user whose rows can be
// corrupted.
func NewForCorruptions(t testing.TB) (d *Database, ann string) {
	t.Helper()
	d, ann = New(t), foldtest.User(0, 0)
	mention := foldtest.Deliver("c", 2, ann, foldtest.User(0, 1))
	mention.Data.MentionedUserIDs = []string{ann}
	like := foldtest.Deliver("likes", 1, ann)
	like.Data.Category = "likes"
	d.Append(t, foldtest.Deliver("c", 1, ann, foldtest.User(0, 2)), mention, foldtest.Deliver("c", 3, ann), foldtest.Event("r", events.ConversationRead, "c", foldtest.UpTo(1), ann),
		foldtest.Deliver("c", 4, ann, foldtest.User(1, 0)), like, foldtest.Deliver("d", 1, foldtest.User(0, 1)),
		foldtest.Event("x", events.MessageRecalled, "c", func(d *events.Data) { d.Seq = 9 }, ann),
		foldtest.Event("x2", events.MessageRecalled, "invisible", func(d *events.Data) { d.Seq = 9 }, ann, foldtest.User(0, 3)),
		foldtest.Event("l", events.ConversationLevelSet, "looked at", foldtest.Level(events.LevelDefault), ann),
		foldtest.Event("m", events.ConversationMarkedUnread, "c2", nil, ann), foldtest.Event("m2", events.ConversationRead, "c2", foldtest.UpTo(1), ann))
	d.Fold(t)
	return d, ann
}

// NewForRooms returns a database with the folded history of a room named lobby. The room has closed
// chunks, and two members in partition 0. The returned member has sent one message of the room and
// is mentioned in another.
func NewForRooms(t testing.TB) (d *Database, member string) {
	t.Helper()
	d, member = New(t), foldtest.User(0, 0)
	evs := []events.Event{foldtest.Event("join", events.RoomJoined, "lobby", nil, member, foldtest.User(0, 1), foldtest.User(1, 0))}
	post := func(seq int64, change func(*events.Data)) {
		evs = append(evs, foldtest.Event(fmt.Sprint("post ", seq), events.RoomPosted, "lobby", func(d *events.Data) {
			if d.Seq = seq; change != nil {
				change(d)
			}
		}))
	}
	for seq := int64(1); seq < 300; seq += 2 {
		post(seq, nil)
	}
	post(301, func(d *events.Data) { d.SenderID = member })
	post(303, func(d *events.Data) { d.MentionedUserIDs = []string{member} })
	post(305, func(d *events.Data) { d.MentionsAll = true })
	evs = append(evs, foldtest.Event("recall", events.RoomRecalled, "lobby", foldtest.Seq(299)), foldtest.Event("read", events.ConversationRead, "lobby", foldtest.UpTo(50), member))
	d.Append(t, evs...)
	d.Fold(t)
	return d, member
}

// RoomCorruptions returns corruptions of the rows of the room lobby in a database made by
// NewForRooms. The statements have no parameters: USER stands for the quoted id of the member.
func RoomCorruptions() []Corruption {
	const inLobby, ofMember = `room "lobby": `, `user USER, conversation "lobby": `
	all := []Corruption{
		{"a missing room", `DELETE FROM badged.rooms_p00`, []string{inLobby + `the row is absent in the table, present by the log`}},
		{"a missing chunk", `DELETE FROM badged.room_chunks_p00 WHERE bound = 127`, []string{inLobby + `row of the chunk up to 127 is absent in the table, present by the log`}},
		{"a missing mark of the sender", `DELETE FROM badged.room_marks_p00 WHERE own`, []string{ofMember + `row of the mark of message 301 is absent in the table, present by the log`}},
		{"a missing mark of a mention", `DELETE FROM badged.room_marks_p00 WHERE NOT own`, []string{ofMember + `row of the mark of message 303 is absent in the table, present by the log`}},
		{"another kind of mark", `UPDATE badged.room_marks_p00 SET own = true`, []string{ofMember + `own of the mark of message 303 is true in the table, false by the log`}},
	}
	for _, c := range []struct{ table, column, value, is, want string }{
		{"rooms", "changes", "9", "9", "154"},
		{"rooms", "last_seq", "1", "1", "305"},
		{"rooms", "members", "7", "7", "2"},
		{"rooms", "category", "'likes'", "likes", "chat"},
		{"rooms", "since", "1", "1", "127"},
		{"rooms", "closed_live", "1", "1", "64"},
		{"rooms", "all_starts", "'{303}'", "{303}", "{305}"},
		{"rooms", "recalled_set", "NULL", "{}", "{[299,300)}"},
	} {
		all = append(all, Corruption{
			c.column + " of a room", `UPDATE badged.` + c.table + `_p00 SET ` + c.column + ` = ` + c.value,
			[]string{inLobby + c.column + ` is ` + c.is + ` in the table, ` + c.want + ` by the log`},
		})
	}
	for _, c := range []struct{ column, value, is, want string }{
		{"joined", "7", "7", "0"},
		{"unread", "9", "9", "1"},
		{"mentions", "9", "9", "1"},
		{"own_set", "NULL", "{}", "{[301,302)}"},
		{"mention_set", "NULL", "{}", "{[303,304)}"},
		{"read_seq", "40", "40", "50"},
	} {
		all = append(all, Corruption{
			c.column + " of a membership", `UPDATE badged.conversations_p00 SET ` + c.column + ` = ` + c.value + ` WHERE user_id = USER`,
			[]string{ofMember + c.column + ` is ` + c.is + ` in the table, ` + c.want + ` by the log`},
		})
	}
	return all
}
