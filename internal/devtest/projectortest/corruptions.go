package projectortest

import (
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
)

// Corruption is a statement that corrupts rows of the user $1 in a database of
// NewForCorruptions, and the differences that a comparison with the log finds.
type Corruption struct {
	Name, SQL string
	Want      []string // with USER for the quoted user
}

// Corruptions returns corruptions of every column and row.
func Corruptions() []Corruption {
	const inC = `user USER, conversation "c": `
	all := []Corruption{
		{"a missing conversation", `DELETE FROM badged.conversations WHERE user_id = $1 AND conversation_id = 'c'`, []string{inC + `the row is absent in the table, present by the log`}},
		{"a missing user", `DELETE FROM badged.users WHERE user_id = $1`, []string{`user USER: the row is absent in the table, present by the log`}},
	}
	for _, id := range []string{"zombie", "looked at"} { // an event named the second, and changed nothing
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
		{"read_seq", "0", "0", "1"},
		{"last_seq", "5", "5", "4"},
		{"left_seq", "4", "4", "empty"},
		{"level", "'none'", "none", "all"},
		{"marked_unread", "true", "true", "false"},
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
		{"categories", `'{"likes": 2, "chat": 3}'`, `{"chat":3,"likes":2}`, `{"chat":3,"likes":1}`},
		{"categories", `'[]'`, `[]`, `{"chat":3,"likes":1}`},
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

// NewForCorruptions returns a database with a folded history of ann, the
// user to corrupt, and of others.
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
		foldtest.Event("l", events.ConversationLevelSet, "looked at", foldtest.Level(events.LevelAll), ann),
		foldtest.Event("m", events.ConversationMarkedUnread, "c2", nil, ann), foldtest.Event("m2", events.ConversationRead, "c2", foldtest.UpTo(1), ann))
	d.Fold(t)
	return d, ann
}
