package foldtest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
)

// CommutingTypes returns the types whose events may come in any order. Deliveries are in the list
// twice, so that they are drawn twice as often.
func CommutingTypes() []events.Type {
	return []events.Type{events.MessageDelivered, events.MessageDelivered, events.ConversationRead, events.MessageRecalled}
}

// EveryType returns all types except the types of rooms.
func EveryType() []events.Type {
	return append(PublishedTypes(), events.ConversationExpired, events.ConversationLevelEnded)
}

// PublishedTypes returns the types in EveryType that publishers may write.
func PublishedTypes() []events.Type {
	return append(CommutingTypes(), events.MessageChanged, events.ConversationMarkedUnread, events.ConversationReset, events.ConversationLevelSet, events.ConversationLeft, events.UserReadAll,
		events.ConversationSeen, events.ConversationSeen, events.CategoryLevelSet, events.CategoryLevelSet, events.UserSeenAll, events.UserLeftAll)
}

// RoomTypes returns EveryType and the types of rooms; the latter are drawn more often.
func RoomTypes() []events.Type {
	return append(EveryType(),
		events.RoomPosted, events.RoomPosted, events.RoomPosted, events.RoomPosted, events.RoomPosted, events.RoomRecalled, events.RoomRecalled,
		events.RoomJoined, events.RoomJoined, events.RoomJoined, events.RoomLeft, events.RoomReset, events.RoomChanged, events.RoomChanged, events.RoomChanged, events.ConversationMarkedUnread, events.ConversationRead)
}

// toRoom reports whether events of a type are to a whole room, so that they name no users.
func toRoom(typ events.Type) bool { return typ.ToRoom() }

// DrawRooms draws a history of all types, in which conversations are rooms for some users during
// some of the time. In some histories all seqs are far apart, in some they are the greatest
// possible seqs, and in some there are more messages than fit into a chunk.
func DrawRooms(t *rapid.T, users []string) []events.Event {
	history := DrawTimes(t, DrawHistory(t, RoomTypes(), users))
	kind := rapid.SampledFrom([]string{"dense", "apart", "last"}).Draw(t, "seqs")
	moved := func(seq int64) int64 {
		switch kind {
		case "apart":
			return 1000 * seq
		case "last":
			return math.MaxInt64 - 8 + seq
		}
		return seq
	}
	for i := range history {
		d := &history[i].Data
		for _, seq := range []*int64{&d.Seq, &d.UpToSeq, &d.FromSeq} {
			if *seq > 0 {
				*seq = moved(*seq)
			}
		}
		d.Seqs = slices.Clone(d.Seqs) // repeated events share the slice
		for j, seq := range d.Seqs {
			d.Seqs[j] = moved(seq)
		}
	}
	if rapid.IntRange(0, 29).Draw(t, "many messages") > 0 {
		return history
	}
	at := rapid.IntRange(0, len(history)).Draw(t, "after")
	return slices.Insert(history, at, DrawMany(t, users)...)
}

// HonestJoins changes the joins of a history with rooms, so that publishers may send it. No join
// has the id of another kind of event, and if a join is repeated, it has the same room and read
// position. Otherwise, whether a join counts would depend on its users, and a partition without
// these users could not know it.
func HonestJoins(history []events.Event) []events.Event {
	first := map[string]events.Data{}
	for i, e := range history {
		if e.Type == events.RoomJoined {
			e.ID += " join"
			if was, ok := first[e.ID]; ok {
				e.Data.UpToSeq, e.Data.ConversationID = was.UpToSeq, was.ConversationID
			} else {
				first[e.ID] = e.Data
			}
		}
		history[i] = Named("room "+e.ID, e)
	}
	return history
}

// DrawNamedRooms draws a history with rooms. number becomes a part of the source of its events and
// of the ids of its conversations, so that a database can have several histories.
func DrawNamedRooms(t *rapid.T, number int, users []string) []events.Event {
	history := DrawRooms(t, users)
	for i := range history {
		history[i].Source, history[i].AppendedAt = fmt.Sprint("history ", number), Noon
		if id := &history[i].Data.ConversationID; *id != "" {
			*id = fmt.Sprintf("%s of %d", *id, number)
		}
	}
	return history
}

// DrawMany draws hundreds of messages of room c1, with some recalls, resets, reads and marks. The
// seqs have gaps, and blocks of messages come in random order.
func DrawMany(t *rapid.T, users []string) []events.Event {
	var many []events.Event
	for _, block := range rapid.Permutation([]int64{0, 1, 2, 3, 4}).Draw(t, "blocks") {
		for i := range int64(rapid.SampledFrom([]int{10, 50, 150}).Draw(t, "messages")) {
			seq := 1000*block + 2*i + 1
			e := Event(fmt.Sprint("many ", seq), events.RoomPosted, "c1", Seq(seq))
			switch rapid.IntRange(0, 20).Draw(t, "special") {
			case 0:
				e.Data.SenderID = rapid.SampledFrom(users).Draw(t, "sender")
			case 1:
				e.Data.MentionsAll = true
			case 2:
				e.Data.MentionedUserIDs = drawUsers(t, users)
			case 3:
				e = Event(fmt.Sprint("recall ", seq), events.RoomRecalled, "c1", Seq(max(1, seq-2*rapid.Int64Range(0, 400).Draw(t, "back"))))
			case 6:
				if seq%1000 > 100 { // a room stores only few resets
					break
				}
				e = Event(fmt.Sprint("end ", seq), events.RoomReset, "c1", func(d *events.Data) {
					d.Seq = max(0, seq-2*rapid.Int64Range(0, 400).Draw(t, "back"))
					d.UpToSeq = max(0, d.Seq-rapid.Int64Range(0, 400).Draw(t, "unread"))
				})
			case 4:
				e = Event(fmt.Sprint("many read ", seq), events.ConversationRead, "c1", UpTo(seq), drawUsers(t, users)...)
			case 5:
				e = Event(fmt.Sprint("many marked ", seq), events.ConversationMarkedUnread, "c1", From(max(1, seq-2*rapid.Int64Range(0, 400).Draw(t, "back"))), drawUsers(t, users)...)
			}
			e.AppendedAt = Noon
			many = append(many, e)
		}
	}
	return many
}

// DrawHistory draws a history with few users, conversations and messages, so that its events often
// affect each other. Some events are repeated: with the same id and the same or other content, or
// with another id.
func DrawHistory(t *rapid.T, types []events.Type, users []string) []events.Event {
	n := rapid.IntRange(1, 40).Draw(t, "number of events")
	history := make([]events.Event, 0, n)
	for i := range n {
		if i > 0 && rapid.IntRange(0, 9).Draw(t, "again") == 0 {
			e := history[rapid.IntRange(0, i-1).Draw(t, "which")]
			how := []string{"the same", "another name"}
			if !toRoom(e.Type) {
				how = append(how, "for others")
			}
			if len(types) >= len(EveryType()) { // of two events with the same id, only the first counts
				how = append(how, "another event")
			}
			switch rapid.SampledFrom(how).Draw(t, "how") {
			case "for others":
				// Take the first event with this id, since it has all mentions. A later repetition
				// for other users may have fewer.
				e = history[slices.IndexFunc(history, func(first events.Event) bool { return first.ID == e.ID && !toRoom(first.Type) })]
				e.Data.UserIDs = drawUsers(t, users)
				e.Data.MentionedUserIDs = slices.DeleteFunc(slices.Clone(e.Data.MentionedUserIDs), func(u string) bool {
					return !slices.Contains(e.Data.UserIDs, u)
				})
			case "another event":
				e = DrawEvent(t, e.ID, rapid.SampledFrom(types).Draw(t, "type"), users)
			case "another name":
				e.ID = fmt.Sprintf("e%d", i)
			}
			history = append(history, e)
			continue
		}
		history = append(history, DrawEvent(t, fmt.Sprintf("e%d", i), rapid.SampledFrom(types).Draw(t, "type"), users))
	}
	return history
}

// DrawNamed draws a history of all types except the types of rooms. number becomes a part of the
// source of its events, so that a database can have several histories.
func DrawNamed(t *rapid.T, number int, users []string) []events.Event {
	history := DrawHistory(t, EveryType(), users)
	for i := range history {
		history[i].Source = fmt.Sprint("history ", number)
	}
	return history
}

// DrawTimes sets the time at which each event of a history was appended. The times are not always
// in order.
func DrawTimes(t *rapid.T, history []events.Event) []events.Event {
	at := Noon
	for i := range history {
		at = at.Add(rapid.SampledFrom([]time.Duration{0, time.Microsecond, 20 * time.Second, time.Minute, -30 * time.Second}).Draw(t, "after"))
		history[i].AppendedAt = at
	}
	return history
}

// Categories that are drawn for messages, which have up to eight parts, and for events about all
// conversations of a category.
var (
	messageCategories  = []string{"", "", "likes", "likes2", "likes/a", "likes/a/b", "system", "likes/1/2/3/4/5/6/7", "system/1/2/3/4/5/6/7"}
	coveringCategories = []string{"chat", "likes", "likes", "likes/a", "likes/1/2", "system/1/2/3/4/5/6/7", "elsewhere"}
	levels             = []events.Level{events.LevelDefault, events.LevelAll, events.LevelMentions, events.LevelDirectMentions, events.LevelNone}
)

// DrawEvent draws an event of a type, for some of the users unless it is to a whole room.
func DrawEvent(t *rapid.T, id string, typ events.Type, users []string) events.Event {
	e := events.Event{ID: id, Source: "test", Type: typ}
	d := &e.Data
	if !toRoom(typ) {
		d.UserIDs = drawUsers(t, users)
	}
	conversations := rapid.SampledFrom([]string{"c1", "c2"})
	seqs := rapid.Int64Range(1, 8)
	if !typ.OfConversations() {
		d.ConversationID = conversations.Draw(t, "conversation")
	}
	switch typ {
	case events.MessageDelivered, events.MessageChanged:
		d.Seq = seqs.Draw(t, "seq")
		d.SenderID = rapid.SampledFrom(append([]string{""}, users...)).Draw(t, "sender")
		d.Category = rapid.SampledFrom(messageCategories).Draw(t, "category")
		d.MentionedUserIDs = rapid.SliceOfNDistinct(rapid.SampledFrom(d.UserIDs), 0, len(d.UserIDs), rapid.ID).Draw(t, "mentioned")
	case events.RoomPosted, events.RoomChanged:
		d.Seq = seqs.Draw(t, "seq")
		d.SenderID = rapid.SampledFrom(append([]string{""}, users...)).Draw(t, "sender")
		d.Category = rapid.SampledFrom(messageCategories).Draw(t, "category")
		d.MentionedUserIDs = rapid.SliceOfNDistinct(rapid.SampledFrom(users), 0, len(users), rapid.ID).Draw(t, "mentioned")
		d.MentionsAll = rapid.IntRange(0, 3).Draw(t, "mentions all") == 0
	case events.RoomJoined:
		if rapid.IntRange(0, 2).Draw(t, "given") == 0 {
			d.UpToSeq = seqs.Draw(t, "up to")
		}
		d.Level = rapid.SampledFrom([]events.Level{"", "", events.LevelMentions, events.LevelDirectMentions, events.LevelNone}).Draw(t, "level")
	case events.MessageRecalled, events.RoomRecalled:
		d.Seq = seqs.Draw(t, "seq")
	case events.ConversationRead:
		d.UpToSeq = seqs.Draw(t, "up to")
		d.ByApp = rapid.Bool().Draw(t, "by an app")
	case events.ConversationExpired:
		d.UpToSeq = seqs.Draw(t, "up to")
	case events.ConversationLeft:
		if rapid.Bool().Draw(t, "ahead") {
			d.UpToSeq = seqs.Draw(t, "up to")
		}
	case events.RoomReset:
		d.Seq, d.UpToSeq = rapid.Int64Range(0, 8).Draw(t, "last"), rapid.Int64Range(0, 8).Draw(t, "up to")
	case events.ConversationReset:
		d.UpToSeq = rapid.Int64Range(0, 8).Draw(t, "up to")
		d.Seqs = rapid.SliceOfN(seqs, 0, 4).Draw(t, "messages")
	case events.ConversationMarkedUnread:
		d.Seqs = rapid.SliceOfN(seqs, 0, 4).Draw(t, "messages")
		if rapid.Bool().Draw(t, "from a message on") {
			d.FromSeq = seqs.Draw(t, "from")
		}
	case events.ConversationLevelSet:
		d.Level = rapid.SampledFrom(levels).Draw(t, "level")
		if rapid.Bool().Draw(t, "for a time") {
			d.Until = drawUntil(t)
		}
	case events.ConversationLevelEnded:
		d.Until = drawUntil(t)
	case events.ConversationSeen:
		d.UpToSeq = seqs.Draw(t, "up to")
		d.ByApp = rapid.Bool().Draw(t, "by an app")
	case events.CategoryLevelSet:
		d.Category = rapid.SampledFrom(coveringCategories).Draw(t, "category")
		d.Level = rapid.SampledFrom(levels).Draw(t, "level")
	case events.UserLeftAll:
		d.Category = rapid.SampledFrom(coveringCategories).Draw(t, "category")
	case events.UserReadAll, events.UserSeenAll:
		d.Category = rapid.SampledFrom(append([]string{""}, coveringCategories...)).Draw(t, "category")
		d.AllCategories = d.Category == ""
	}
	if typ == events.MessageChanged || typ == events.MessageRecalled || typ == events.RoomChanged || typ == events.RoomRecalled {
		d.Revision = rapid.Int64Range(0, 4).Draw(t, "revision")
	}
	if err := e.Validate(); err != nil {
		t.Fatalf("drew an event that is invalid: %v", err)
	}
	return e
}

func drawUsers(t *rapid.T, users []string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(users), 1, len(users), rapid.ID).Draw(t, "users")
}

// drawUntil draws one of a few times at which levels end.
func drawUntil(t *rapid.T) time.Time {
	return Noon.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "until")) * time.Hour)
}
