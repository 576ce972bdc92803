package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/fold/badge"
)

// tellExplanation tells an explanation in lines, without times and positions.
func tellExplanation(e Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "total %d, mentions %d\n", e.Total, e.Mentions)
	for _, c := range e.Conversations {
		fmt.Fprintf(&b, "%s adds %d of %d at level %s", c.ConversationID, c.Adds, c.Unread, c.Applies)
		if c.LevelOf != "" {
			fmt.Fprintf(&b, " of %s", c.LevelOf)
		}
		if c.LevelBy != nil {
			fmt.Fprintf(&b, " by %s", c.LevelBy.ID)
		}
		if c.LastRead != nil {
			fmt.Fprintf(&b, ", read up to %d by %s", c.LastRead.UpToSeq, c.LastRead.ID)
		}
		if c.MarkedBy != nil {
			fmt.Fprintf(&b, ", marked by %s", c.MarkedBy.ID)
		}
		for _, m := range c.Messages {
			fmt.Fprintf(&b, "; %d by %s", m.Seq, m.ID)
			if m.Mentioned {
				b.WriteString(" mentions")
			}
		}
		if c.MoreMessages > 0 {
			fmt.Fprintf(&b, "; %d more", c.MoreMessages)
		}
		b.WriteString("\n")
	}
	for _, u := range e.Uncounted {
		fmt.Fprintf(&b, "not %s: %s, %s\n", u.ID, u.Why, u.Detail)
	}
	return b.String()
}

func TestExplainStories(t *testing.T) {
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	recall := func(id string, seq int64) events.Event {
		return foldtest.Event(id, events.MessageRecalled, "c", func(d *events.Data) { d.Seq = seq }, ann)
	}
	named := func(e events.Event, id string) events.Event {
		e.ID = id
		return e
	}
	mentioning := func(e events.Event) events.Event {
		e.Data.MentionedUserIDs = []string{ann}
		return e
	}
	for _, tc := range []struct {
		name  string
		story []events.Event
		want  string
	}{
		{"two messages, of which the first is read", []events.Event{
			foldtest.Deliver("c", 1, ann), foldtest.Event("r", events.ConversationRead, "c", foldtest.UpTo(1), ann), foldtest.Deliver("c", 2, ann), foldtest.Deliver("c", 3, ann),
		}, `total 2, mentions 0
c adds 2 of 2 at level all, read up to 1 by r; 3 by c/3; 2 by c/2
`},
		{"marked messages, of which one is recalled", []events.Event{
			foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 2, ann), foldtest.Deliver("c", 3, ann), foldtest.Event("r", events.ConversationRead, "c", foldtest.UpTo(3), ann),
			foldtest.Event("m", events.ConversationMarkedUnread, "c", foldtest.Seqs(1, 2), ann), recall("x", 2), foldtest.Deliver("c", 4, ann),
			foldtest.Event("again", events.ConversationMarkedUnread, "c", foldtest.Seqs(2), ann),
		}, `total 2, mentions 0
c adds 2 of 2 at level all, read up to 3 by r; 4 by c/4; 1 by m
not again: already_marked, each of the messages was marked or unread before, recalled, or not delivered since the user last left
`},
		{"restored, and edited with an old revision", []events.Event{
			foldtest.Deliver("c", 1, ann), recall("x", 1), foldtest.Event("back", events.MessageChanged, "c", func(d *events.Data) { d.Seq, d.Revision = 1, 2 }, ann),
			mentioning(foldtest.Event("old", events.MessageChanged, "c", func(d *events.Data) { d.Seq, d.Revision = 1, 1 }, ann)),
		}, `total 1, mentions 0
c adds 1 of 1 at level all; 1 by back
not old: same_state, the message was in this state already, or a later revision of it was folded before
`},
		{"reset, after a read far ahead", []events.Event{
			foldtest.Deliver("c", 1, ann), foldtest.Event("far", events.ConversationRead, "c", foldtest.UpTo(1e15), ann), foldtest.Deliver("c", 2, ann),
			foldtest.Event("reset", events.ConversationReset, "c", func(d *events.Data) { d.UpToSeq, d.Seqs = 1, []int64{2} }, ann), foldtest.Deliver("c", 3, ann),
			foldtest.Event("same", events.ConversationReset, "d", nil, ann),
		}, `total 2, mentions 0
c adds 2 of 2 at level all, read up to 1 by reset; 3 by c/3; 2 by reset
not same: same_state, the conversation was in this state already
not c/2: already_read, the conversation was read up to 1000000000000000 before
`},
		{"a duplicate", []events.Event{foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 1, ann)}, `total 1, mentions 0
c adds 1 of 1 at level all; 1 by c/1
not c/1: duplicate, the user had an event of the same source and id before, at POSITION
`},
		{"a duplicate twice", []events.Event{foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 1, ann)}, `total 1, mentions 0
c adds 1 of 1 at level all; 1 by c/1
not c/1: duplicate, the user had an event of the same source and id before, at POSITION
not c/1: duplicate, the user had an event of the same source and id before, at POSITION
`},
		{"a duplicate that says something else", []events.Event{foldtest.Deliver("c", 1, ann), named(foldtest.Deliver("d", 7, ann), "c/1")}, `total 1, mentions 0
c adds 1 of 1 at level all; 1 by c/1
not c/1: duplicate, the user had an event of the same source and id before, at POSITION
`},
		{"an event of the same name for another user", []events.Event{foldtest.Deliver("c", 1, bob), named(foldtest.Deliver("d", 7, ann), "c/1")}, `total 1, mentions 0
d adds 1 of 1 at level all; 7 by c/1
`},
		{"an event that comes again for more users", []events.Event{foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 1, bob, ann)}, `total 1, mentions 0
c adds 1 of 1 at level all; 1 by c/1
not c/1: duplicate, the user had an event of the same source and id before, at POSITION
`},
		{"a message that comes again under another id", []events.Event{foldtest.Deliver("c", 1, ann), named(foldtest.Deliver("c", 1, ann), "again")}, `total 1, mentions 0
c adds 1 of 1 at level all; 1 by c/1
not again: already_delivered, an earlier event delivered the message
`},
		{"a mention that comes with the second delivery", []events.Event{foldtest.Deliver("c", 1, ann), named(mentioning(foldtest.Deliver("c", 1, ann)), "again")}, `total 1, mentions 1
c adds 1 of 1 at level all; 1 by c/1 mentions
`},
		{"a late message", []events.Event{foldtest.Event("r", events.ConversationRead, "c", foldtest.UpTo(5), ann), foldtest.Deliver("c", 4, ann), foldtest.Deliver("c", 6, ann)}, `total 1, mentions 0
c adds 1 of 1 at level all, read up to 5 by r; 6 by c/6
not c/4: already_read, the conversation was read up to 5 before
`},
		{"recalled", []events.Event{foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 2, ann), recall("x", 1), recall("y", 1)}, `total 1, mentions 0
c adds 1 of 1 at level all; 2 by c/2
not y: recalled, the message was recalled before
`},
		{"recalled before it came", []events.Event{recall("x", 1), foldtest.Deliver("c", 1, ann)}, `total 0, mentions 0
not c/1: recalled, the message was recalled before
not x: not_delivered, the message was not delivered; if it is delivered later, it does not count
`},
		{"read by an app before it was delivered", []events.Event{
			foldtest.Event("r", events.ConversationRead, "c", foldtest.ByApp(2), ann), foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 2, ann), foldtest.Deliver("c", 3, ann),
		}, `total 1, mentions 0
c adds 1 of 1 at level all, read up to 2 by r; 3 by c/3
not c/2: already_read, an app had read the message before it was delivered
not c/1: already_read, an app had read the message before it was delivered
not r: not_delivered, no message above 0 was delivered before; messages up to 2 are read if they are delivered within 1m0s
`},
		{"left before it was delivered", []events.Event{
			foldtest.Deliver("c", 1, ann), foldtest.Event("l", events.ConversationLeft, "c", foldtest.UpTo(2), ann), foldtest.Deliver("c", 2, ann), foldtest.Deliver("c", 3, ann),
		}, `total 1, mentions 0
c adds 1 of 1 at level all, read up to 2 by l; 3 by c/3
not c/2: left, the user had left the conversation up to 2
`},
		{"recalled after it was read", []events.Event{foldtest.Deliver("c", 1, ann), foldtest.Event("r", events.ConversationRead, "c", foldtest.UpTo(1), ann), recall("x", 1)}, `total 0, mentions 0
not x: already_read, the conversation was read up to 1 before
`},
		{"the user's own message", []events.Event{foldtest.Event("m", events.MessageDelivered, "c", func(d *events.Data) { d.Seq, d.SenderID = 1, ann }, ann)}, `total 0, mentions 0
not m: own_message, the user sent the message
`},
		{"reads that move nothing", []events.Event{
			foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 2, ann),
			foldtest.Event("r1", events.ConversationRead, "c", foldtest.UpTo(1), ann), foldtest.Event("r2", events.ConversationRead, "c", foldtest.UpTo(1), ann),
			foldtest.Event("x1", events.ConversationExpired, "c", foldtest.UpTo(1), ann),
		}, `total 1, mentions 0
c adds 1 of 1 at level all, read up to 1 by r1; 2 by c/2
not x1: already_read, the conversation was read up to 1 before
not r2: already_read, the conversation was read up to 1 before
`},
		{"left, and brought back", []events.Event{
			foldtest.Deliver("c", 1, ann), foldtest.Event("l1", events.ConversationLeft, "c", nil, ann), foldtest.Event("l2", events.ConversationLeft, "c", nil, ann),
			foldtest.Event("m", events.ConversationMarkedUnread, "c", nil, ann), foldtest.Deliver("c", 2, ann),
		}, `total 1, mentions 0
c adds 1 of 1 at level all, read up to 1 by l1; 2 by c/2
not m: left, the user had left the conversation
not l2: left, the user had left the conversation before
`},
		{"level none", []events.Event{
			foldtest.Deliver("c", 1, ann), foldtest.Event("n1", events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), ann),
			foldtest.Event("n2", events.ConversationLevelSet, "c", foldtest.Level(events.LevelNone), ann),
		}, `total 0, mentions 0
c adds 0 of 1 at level none by n1; 1 by c/1
not n2: same_level, the level was none before
`},
		{"level mentions", []events.Event{
			foldtest.Deliver("c", 1, ann), mentioning(foldtest.Deliver("c", 2, ann)), foldtest.Event("m", events.ConversationLevelSet, "c", foldtest.Level(events.LevelMentions), ann),
		}, `total 1, mentions 1
c adds 1 of 2 at level mentions by m; 2 by c/2 mentions; 1 by c/1
`},
		{"marked unread", []events.Event{foldtest.Event("m1", events.ConversationMarkedUnread, "c", nil, ann), foldtest.Event("m2", events.ConversationMarkedUnread, "c", nil, ann)}, `total 1, mentions 0
c adds 1 of 0 at level all, marked by m1
not m2: already_marked, the conversation was marked unread before
`},
		{"a mark that a read ends", []events.Event{
			foldtest.Event("m", events.ConversationMarkedUnread, "c", nil, ann), foldtest.Event("r", events.ConversationRead, "c", foldtest.UpTo(3), ann), foldtest.Deliver("c", 4, ann),
		}, `total 1, mentions 0
c adds 1 of 1 at level all, read up to 3 by r; 4 by c/4
`},
		{"read all, and nothing left to read", []events.Event{
			foldtest.Deliver("c", 1, ann), foldtest.Deliver("d", 1, ann), foldtest.Event("a1", events.UserReadAll, "", nil, ann),
			foldtest.Event("a2", events.UserReadAll, "", nil, ann), foldtest.Deliver("d", 2, ann),
		}, `total 1, mentions 0
d adds 1 of 1 at level all, read up to 1 by a1; 2 by d/2
not a2: nothing_unread, nothing was unread
`},
		{"a muted category with a loud one below", []events.Event{
			foldtest.InCategory("acme/a", foldtest.Deliver("c", 1, ann)), foldtest.InCategory("acme/b", foldtest.Deliver("d", 1, ann)),
			foldtest.InCategory("acme", foldtest.Event("n", events.CategoryLevelSet, "", foldtest.Level(events.LevelNone), ann)),
			foldtest.InCategory("acme/b", foldtest.Event("l", events.CategoryLevelSet, "", foldtest.Level(events.LevelAll), ann)),
			foldtest.InCategory("acme", foldtest.Event("n2", events.CategoryLevelSet, "", foldtest.Level(events.LevelNone), ann)),
		}, `total 1, mentions 0
d adds 1 of 1 at level all of acme/b; 1 by d/1
c adds 0 of 1 at level none of acme; 1 by c/1
not n2: same_level, the level of the category was none before
`},
		{"a group", []events.Event{foldtest.Deliver("c", 1, bob, ann, foldtest.User(1, 0)), foldtest.Deliver("c", 2, bob, foldtest.User(1, 0))}, `total 1, mentions 0
c adds 1 of 1 at level all; 1 by c/1
`},
		{
			"the events of others",
			[]events.Event{foldtest.Deliver(ann, 1, bob), foldtest.Event("m", events.MessageDelivered, "c", func(d *events.Data) { d.Seq, d.SenderID = 1, ann }, bob)},
			"total 0, mentions 0\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := projectortest.New(t)
			var first string
			for i, e := range tc.story {
				d.Append(t, e)
				if d.Fold(t); i == 0 {
					first = d.Position(t, 0).String()
				}
			}
			e := explain(t, d, ann, Question{})
			if diff := cmp.Diff(strings.ReplaceAll(tc.want, "POSITION", first), tellExplanation(e)); diff != "" {
				t.Errorf("after\n%sthe explanation is (-want +got):\n%s", foldtest.Story(tc.story), diff)
			}
			if !e.Agrees || e.Table == nil {
				t.Errorf("it does not agree with the tables: %+v", e)
			}
		})
	}
}

// unreadSets maps each conversation to its messages that are unread or marked as unread, and each
// message to whether it mentions the user.
func unreadSets(conversations map[string]*foldtest.Conversation) map[string]map[int64]bool {
	sets := map[string]map[int64]bool{}
	for id, c := range conversations {
		if len(c.Unread)+len(c.Again) == 0 && !c.Marked {
			continue
		}
		sets[id] = map[int64]bool{}
		for seq := range c.Unread {
			sets[id][seq] = c.Mentions[seq]
		}
		for seq := range c.Again {
			sets[id][seq] = false
		}
	}
	return sets
}

func explainedSets(e Explanation) map[string]map[int64]bool {
	sets := map[string]map[int64]bool{}
	for _, c := range e.Conversations {
		sets[c.ConversationID] = map[int64]bool{}
		for _, m := range c.Messages {
			sets[c.ConversationID][m.Seq] = m.Mentioned
		}
	}
	return sets
}

// faultOf returns the part of an explanation that no folded event proves, or "". The explanation
// names events by id, and several events may have the same id: one of them must be the proof.
func faultOf(c ExplainedConversation, folded []events.Event) string {
	find := func(id string, fits func(*events.Event) bool) bool {
		return slices.ContainsFunc(folded, func(e events.Event) bool { return e.ID == id && fits(&e) })
	}
	for _, m := range c.Messages {
		if !find(m.ID, func(e *events.Event) bool {
			again := (m.Seq <= c.ReadSeq || e.Type == events.ConversationReset) && slices.Contains(e.Data.Seqs, m.Seq)
			return ((e.Type == events.MessageDelivered || e.Type == events.MessageChanged) && e.Data.Seq == m.Seq || again) && e.Data.ConversationID == c.ConversationID && e.Source == m.Source
		}) {
			return "message " + m.ID
		}
	}
	if c.LastRead != nil && c.LastRead.UpToSeq != c.ReadSeq || c.LastRead == nil && c.ReadSeq != 0 {
		return "last read"
	}
	if c.LastRead != nil {
		if !find(c.LastRead.ID, func(e *events.Event) bool {
			switch e.Type {
			case events.ConversationRead, events.ConversationExpired, events.ConversationReset:
				trusted := e.Type != events.ConversationExpired && !e.Data.ByApp
				return e.Data.ConversationID == c.ConversationID && (e.Data.UpToSeq == c.ReadSeq || !trusted && e.Data.UpToSeq > c.ReadSeq)
			}
			return e.Type == events.UserReadAll || e.Type == events.ConversationLeft || e.Type == events.UserLeftAll
		}) {
			return "last read " + c.LastRead.ID
		}
	}
	if c.MarkedUnread != (c.MarkedBy != nil) || c.MarkedBy != nil && !find(c.MarkedBy.ID, func(e *events.Event) bool { return e.Type == events.ConversationMarkedUnread }) {
		return "mark"
	}
	if c.LevelBy != nil && !find(c.LevelBy.ID, func(e *events.Event) bool {
		return string(e.Data.Level) == c.Level || e.Type == events.ConversationLevelEnded
	}) || c.LevelBy == nil && c.Level != string(events.LevelDefault) {
		return "level"
	}
	return ""
}

// The explanation of a past time is based on exactly the events that had been appended by then.
func TestExplainThePast(t *testing.T) {
	d := projectortest.New(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n)}
		history := foldtest.DrawNamed(rt, n, users)
		began := time.Date(2026, 1, n%28+1, 0, 0, 0, 0, time.UTC)
		for i := range history {
			d.AppendAt(t, began.Add(time.Duration(i+1)*time.Second), history[i])
		}
		d.Fold(t)
		d.Exec(t, `DELETE FROM badged.late_folds`) // as if each had been folded at once
		happened := rapid.IntRange(0, len(history)).Draw(rt, "events until then")
		truth := foldtest.Model{Events: history[:happened]}
		for _, id := range users {
			e := explain(t, d, id, Question{At: began.Add(time.Duration(happened) * time.Second)})
			conversations := truth.Conversations(id)
			levels := truth.Levels(id)
			if diff := cmp.Diff(unreadSets(conversations), explainedSets(e)); diff != "" {
				rt.Fatalf("after %d events of\n%sthe messages of %s are (-want +got):\n%s", happened, foldtest.Story(history), id, diff)
			}
			total := int64(0)
			for _, c := range conversations {
				total += c.Adds(levels).Total
			}
			if e.Total != total || e.Table != nil || !e.Agrees || e.At == nil {
				rt.Fatalf("after %d events of\n%sthe explanation of %s, want total %d:\n%+v", happened, foldtest.Story(history), id, total, e)
			}
		}
	})
}

// Explanations find ids that are part of other ids, that JSON escapes, or that have special
// characters of patterns.
func TestExplainUnusualIDs(t *testing.T) {
	d := projectortest.New(t)
	ids := []string{
		"ann", "ann2", "joann", `ann"`, `"ann"`, `ann\`, `a\u006en`, "a/nn", "a%n", "a_n", "än", "安", "🔔", "a\u2028n", "a'n", "ann,ann", "ANN",
	}
	for i, id := range ids {
		e := foldtest.Deliver("c"+id, 1, id)
		e.ID = fmt.Sprint(i)
		d.Append(t, e)
	}
	d.Fold(t)
	for _, id := range ids {
		e := explain(t, d, id, Question{})
		if e.Total != 1 || !e.Agrees || len(e.Conversations) != 1 || e.Conversations[0].ConversationID != "c"+id || len(e.Uncounted) != 0 {
			t.Errorf("the explanation of %s is\n%s", id, tellExplanation(e))
		}
	}
}

func TestExplainWhatOthersHaveWritten(t *testing.T) {
	d := projectortest.New(t)
	ann, slash := foldtest.User(0, 0), ""
	for i := 0; slash == ""; i++ {
		if id := fmt.Sprint("chat/", i); events.PartitionOf(id, foldtest.Partitions) == 0 {
			slash = id
		}
	}
	escaped := `\u0075` + ann[1:] // u
	message := func(id, user string, seq int) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":"%s","source":"php","type":"message.delivered","data":{"conversation_id":"c","user_ids":["%s"],"seq":%d}}`, id, user, seq)
	}
	// With an id of its own making, and with the key that badged would give.
	d.InsertPayload(t, message("1", escaped, 1))
	d.InsertPayload(t, message("1", ann, 2)) // a duplicate
	d.InsertPayload(t, message("2", strings.ReplaceAll(slash, "/", `\/`), 1))
	d.InsertPayload(t, message("3", foldtest.User(0, 1), 1))
	d.InsertPayload(t, message("3", ann, 3)) // for another user first
	key := (&events.Event{Source: "php", ID: "4"}).Key()
	d.Exec(t, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload) VALUES (pg_current_xact_id(), $1, convert_to($2, 'UTF8'))`,
		[16]byte(key), message("4", escaped, 4))
	key = (&events.Event{Source: "php", ID: "5"}).Key()
	d.Exec(t, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload) VALUES (pg_current_xact_id(), $1, convert_to($2, 'UTF8'))`,
		[16]byte(key), message("5", strings.ReplaceAll(slash, "/", `\/`), 5))
	e := foldtest.Deliver("c", 6, ann) // a duplicate of what another has written
	e.Source, e.ID = "php", "3"
	d.Append(t, e)
	e = foldtest.Deliver("c", 9, foldtest.User(0, 1))
	e.Source, e.ID = "php", "9"
	d.Append(t, e)
	d.InsertPayload(t, message("9", ann, 9)) // for another user first
	d.InsertPayload(t, fmt.Sprintf(`{"specversion":"1.0","id":"7","source":"php","type":"message.teleported","data":{"user_ids":["%s"]}}`, ann))
	d.InsertPayload(t, `{"specversion":"1.0","id":"8","source":"php","type":"message.teleported","data":{}}`)
	d.InsertPayload(t, "")
	d.Fold(t)

	x := explain(t, d, ann, Question{})
	reasons := map[Why]int{}
	for _, u := range x.Uncounted {
		reasons[u.Why]++
	}
	if diff := cmp.Diff(map[Why]int{WhyDuplicate: 2, WhyDeadLetter: 1}, reasons); diff != "" || !x.Agrees || x.Total != 4 {
		t.Errorf("the explanation is (%v)\n%sreasons (-want +got):\n%s", x.Agrees, tellExplanation(x), diff)
	}
	if x := explain(t, d, slash, Question{}); !x.Agrees || x.Total != 2 {
		t.Errorf("the explanation of %s is (%v)\n%s", slash, x.Agrees, tellExplanation(x))
	}
}

// An explanation has an end, however much there is to tell.
func TestExplanationIsLimited(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	var evs []events.Event
	for seq := int64(1); seq <= 2500; seq++ {
		evs = append(evs, foldtest.Deliver("busy", seq, ann))
	}
	for i := range maxExplained + 5 {
		evs = append(evs, foldtest.Deliver(fmt.Sprint("quiet-", i), 1, ann))
	}
	d.Append(t, evs...)
	for i := range 3 * maxUncounted {
		e := foldtest.Deliver("busy", 2500, ann)
		e.ID = fmt.Sprint("again-", i)
		d.Append(t, e)
	}
	d.Append(t, foldtest.Event("recall", events.MessageRecalled, "busy", func(d *events.Data) { d.Seq = 2500 }, ann))
	d.Fold(t)

	e := explain(t, d, ann, Question{})
	if e.Total != 2499+maxExplained+5 || !e.Agrees {
		t.Errorf("the total is %d (%v)", e.Total, e.Agrees)
	}
	if len(e.Conversations) != maxExplained || e.MoreConversations != 6 || e.MoreAdds != 6 || e.Conversations[0].ConversationID != "busy" {
		t.Errorf("%d conversations, the first %s; %d more, which add %d", len(e.Conversations), e.Conversations[0].ConversationID, e.MoreConversations, e.MoreAdds)
	}
	busy := e.Conversations[0]
	if len(busy.Messages) != maxCounted || busy.Messages[0].Seq != 2499 || busy.Messages[maxCounted-1].Seq != 2400 || busy.MoreMessages != 2399 {
		t.Errorf("%d messages from %d to %d; %d more", len(busy.Messages), busy.Messages[0].Seq, busy.Messages[maxCounted-1].Seq, busy.MoreMessages)
	}
	if n := len(e.Uncounted); n != maxUncounted || e.Uncounted[0].ID != "again-299" || e.Uncounted[n-1].ID != "again-200" || e.MoreUncounted != 2*maxUncounted {
		t.Errorf("%d uncounted events from %s; %d more", n, e.Uncounted[0].ID, e.MoreUncounted)
	}
}

// What is only counted, in a room whose seqs are not dense, is among the rest.
func TestExplainASparseRoom(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	var evs []events.Event
	for i := range int64(badge.MaxRanges + 50) {
		evs = append(evs, foldtest.Deliver("c", 2*i+1, ann))
	}
	d.Append(t, evs...)
	d.Fold(t)
	e := explain(t, d, ann, Question{})
	if c := e.Conversations[0]; !e.Agrees || c.Adds != badge.MaxRanges+50 || c.MoreMessages != badge.MaxRanges+50-maxCounted || c.FirstUnreadSeq != 1 {
		t.Errorf("the explanation (%v) is\n%s", e.Agrees, tellExplanation(e))
	}
}

func TestExplainAStranger(t *testing.T) {
	d := projectortest.New(t)
	e := explain(t, d, "stranger", Question{})
	if !e.Agrees || e.Total != 0 || e.Conversations == nil || e.Uncounted == nil || e.Categories == nil || e.Position != "0/0" {
		t.Errorf("the explanation is %+v", e)
	}
}

// An explanation has the numbers of the log and says that the tables differ, even if the user's own
// row is right.
func TestExplanationThatDisagrees(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.Append(t, foldtest.Deliver("c", 1, ann))
	d.Fold(t)
	for _, change := range []string{"total = 5", "mentions = 1", "version = 9", `categories = '{"likes": [1, 1]}'`} {
		d.Exec(t, `UPDATE badged.users SET total = 1, mentions = 0, version = 1, categories = '{"chat": [1, 1]}'`)
		if e := explain(t, d, ann, Question{}); !e.Agrees {
			t.Fatalf("it disagrees with what is right: %+v", e)
		}
		d.Exec(t, `UPDATE badged.users SET `+change)
		if e := explain(t, d, ann, Question{}); e.Agrees || e.Total != 1 || e.Version != 1 {
			t.Errorf("with %s the explanation is %+v", change, e)
		}
	}
	d.Exec(t, `UPDATE badged.users SET total = 1, mentions = 0, version = 1, categories = '{"chat": [1, 1]}'`)
	d.Exec(t, `UPDATE badged.conversations SET unread = 9, unread_set = decode(repeat('00', 400), 'hex')`)
	e := explain(t, d, ann, Question{Conversation: "other"})
	if e.Agrees || len(e.Differences) != 2 || e.Differences[0].String() != `user "`+ann+`", conversation "c": unread is 9 in the table, 1 by the log` {
		t.Errorf("with a damaged conversation the explanation is %+v", e)
	}
	for _, d := range e.Differences {
		if len(d.Table) > 200 {
			t.Errorf("a value of %d bytes is in the explanation", len(d.Table))
		}
	}
}

// What is not folded yet is in neither.
func TestExplainAsFarAsFolded(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.Append(t, foldtest.Deliver("c", 1, ann))
	d.Fold(t)
	d.StopFolding()
	d.Append(t, foldtest.Deliver("c", 2, ann), foldtest.Deliver("c", 1, ann))
	if e := explain(t, d, ann, Question{}); e.Total != 1 || len(e.Uncounted) != 0 || !e.Agrees || e.Position != d.Position(t, 0).String() {
		t.Errorf("the explanation is %+v", e)
	}
}

func TestExplanationsWaitForEachOther(t *testing.T) {
	d := projectortest.New(t)
	x := NewExplainer(d.Pool, d.Log)
	for range explanationsAtOnce {
		x.slots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Explain(ctx, "ann", Question{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with all slots taken it fails with %v", err)
	}
	<-x.slots
	if _, err := x.Explain(t.Context(), "ann", Question{}); err != nil {
		t.Error(err)
	}
	if len(x.slots) != explanationsAtOnce-1 {
		t.Error("it did not give its slot back")
	}
}
