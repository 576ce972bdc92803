package logview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// next returns what is new in a view: a line for each event.
func next(t *testing.T, v *View) (lines []string) {
	t.Helper()
	if err := v.Next(t.Context(), func(partition int, r *events.Record) error {
		line := fmt.Sprintf("%d: %s", partition, r.Payload)
		if e, err := events.Decode(r.Payload); err == nil {
			line = fmt.Sprintf("%d: %s %d of %s, index %d", partition, e.Data.ConversationID, e.Data.Seq, e.Data.UserIDs, r.Index)
		}
		lines = append(lines, line)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return lines
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// A view has each folded event, of rows with several too, that its filter lets in.
func TestFilters(t *testing.T) {
	d := projectortest.New(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(1, 0)
	byChat := foldtest.Deliver("c", 1, ann)
	byChat.PublishedBy = "chat"
	d.AppendAgo(t, time.Hour, byChat, foldtest.Deliver("d", 1, ann, bob))
	d.Append(t, foldtest.Deliver("c", 2, ann))
	d.InsertPayload(t, `{}`)
	d.Fold(t)
	d.StopFolding()
	d.Append(t, foldtest.Deliver("c", 3, ann)) // is not folded
	line := func(partition int, conversation string, seq int, user string, index int) string {
		return fmt.Sprintf("%d: %s %d of [%s], index %d", partition, conversation, seq, user, index)
	}
	old, both := line(0, "c", 1, ann, 0), line(0, "d", 1, ann, 1)
	others, recent := line(1, "d", 1, bob, 0), line(0, "c", 2, ann, 0)
	now := time.Now().Add(-time.Minute)
	for name, tc := range map[string]struct {
		filter Filter
		want   []string
	}{
		"all":          {Filter{}, []string{old, both, recent, "0: {}", others}},
		"a partition":  {Filter{Partitions: []int{1}}, []string{others}},
		"user":         {Filter{User: bob}, []string{others}},
		"conversation": {Filter{Conversation: "c"}, []string{old, recent}},
		"key":          {Filter{PublishedBy: "chat"}, []string{old}},
		"both":         {Filter{User: ann, Conversation: "d"}, []string{both}},
		"since":        {Filter{Since: now}, []string{recent, "0: {}"}},
		"until":        {Filter{Until: now}, []string{old, both, others}},
	} {
		t.Run(name, func(t *testing.T) {
			wantLines(t, "events", next(t, New(d.Pool, d.Log, tc.filter)), tc.want...)
		})
	}
}

// The events of a user have the messages to rooms between joining and leaving, also
// if the user joined before the log was cut or before the times that are shown.
func TestMessagesToRooms(t *testing.T) {
	d := projectortest.New(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	in := func(name string, typ events.Type, users ...string) events.Event {
		return foldtest.Event(name, typ, "room", nil, users...)
	}
	post := func(seq int64) events.Event {
		return foldtest.InCategory("acme/hall", foldtest.Event(fmt.Sprint("post ", seq), events.RoomPosted, "room", foldtest.Seq(seq)))
	}
	d.AppendAgo(t, time.Hour, in("bob", events.RoomJoined, bob), post(1), in("join", events.RoomJoined, ann), post(2),
		in("leave", events.RoomLeft, ann), in("join", events.RoomJoined, ann), post(3), in("join again", events.RoomJoined, ann))
	d.Fold(t)
	line := func(seq int, users string) string { return fmt.Sprintf("0: room %d of %s", seq, users) }
	withoutIndex := func(v *View) (lines []string) {
		for _, l := range next(t, v) {
			before, _, _ := strings.Cut(l, ", index")
			lines = append(lines, before)
		}
		return lines
	}
	named := "[" + ann + "]"
	wantLines(t, "before the cut", withoutIndex(New(d.Pool, d.Log, Filter{User: ann})),
		line(0, named), line(2, "[]"), line(0, named), line(0, named), line(0, named)) // the second join is a repeat
	d.EndRange(t, 0)
	if err := archiving.Run(t.Context(), archiving.Config{Pool: d.Pool, Log: d.Log, Store: archive.Folder(t.TempDir()), Before: time.Now().Add(time.Hour), Archived: func(r archiving.Result) {
		if r.Partition == 0 && r.Dropped == 0 {
			t.Errorf("nothing was archived: %s", r.Kept)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	d.AppendAgo(t, time.Hour, post(4))
	d.AppendEach(t, foldtest.Event("recall", events.RoomRecalled, "room", foldtest.Seq(2)), foldtest.Event("other", events.RoomPosted, "other", foldtest.Seq(1)),
		foldtest.InCategory("acme", foldtest.Event("leave all", events.UserLeftAll, "", nil, ann)), post(5))
	d.Fold(t)
	wantLines(t, "behind the cut", withoutIndex(New(d.Pool, d.Log, Filter{User: ann})), line(4, "[]"), line(2, "[]"), "0:  0 of "+named)
	wantLines(t, "recent", withoutIndex(New(d.Pool, d.Log, Filter{User: ann, Since: time.Now().Add(-time.Minute)})), line(2, "[]"), "0:  0 of "+named)
}

// Each call of Next visits the events folded since the last call, late events also once.
func TestNext(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	late := d.Begin(t)
	if _, err := d.Log.Publish(t.Context(), late, foldtest.Deliver("late", 1, ann), foldtest.Deliver("late", 2, ann)); err != nil {
		t.Fatal(err)
	}
	d.Append(t, foldtest.Deliver("c", 1, ann))
	d.Fold(t)
	v := New(d.Pool, d.Log, Filter{User: ann})
	wantLines(t, "first", next(t, v), fmt.Sprintf("0: c 1 of [%s], index 0", ann))
	wantLines(t, "then", next(t, v))
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "before the late events are folded", next(t, v))
	d.Append(t, foldtest.Deliver("c", 2, ann))
	d.Fold(t)
	wantLines(t, "late", next(t, v), fmt.Sprintf("0: late 1 of [%s], index 0", ann), fmt.Sprintf("0: late 2 of [%s], index 1", ann),
		fmt.Sprintf("0: c 2 of [%s], index 0", ann))
	wantLines(t, "at the end", next(t, v))
}
