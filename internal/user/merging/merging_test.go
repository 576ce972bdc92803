package merging_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/user/merging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

var guest, account, other = foldtest.User(0, 0), foldtest.User(1, 0), foldtest.User(0, 1)

func merge(t testing.TB, d *projectortest.Database) merging.Merged {
	t.Helper()
	r, err := merging.Merge(t.Context(), merging.Config{Pool: d.Pool, Log: d.Log, Guest: guest, Account: account})
	if err != nil {
		t.Fatal(err)
	}
	d.Fold(t)
	return r
}

// conversation returns what the account sees of a conversation: unread, mentions, first
// unread, read position, level, mark.
func conversation(t testing.TB, d *projectortest.Database, user, id string) string {
	t.Helper()
	lines := d.Lines(t, `SELECT concat_ws(' ', unread, mentions, read_seq, level, marked_unread) FROM badged.unread WHERE user_id = $1 AND conversation_id = $2`, user, id)
	if len(lines) == 0 {
		return "left"
	}
	return lines[0]
}

// The account gets the union of the unread messages and the higher read position, and the guest
// has nothing left.
func TestMerge(t *testing.T) {
	d := projectortest.New(t)
	d.AppendEach(t,
		foldtest.Mentioning(foldtest.Deliver("tea", 1, guest)), foldtest.Deliver("tea", 2, guest, other), foldtest.Mentioning(foldtest.Deliver("tea", 3, guest)),
		foldtest.Event("r1", events.ConversationRead, "tea", foldtest.UpTo(1), guest),
		foldtest.Deliver("both", 1, guest, account), foldtest.Deliver("both", 2, account), foldtest.Deliver("both", 3, guest, account), foldtest.Deliver("both", 4, guest),
		foldtest.Event("r2", events.ConversationRead, "both", foldtest.UpTo(2), account),
		foldtest.Deliver("muted", 5, guest), foldtest.Event("l", events.ConversationLevelSet, "muted", foldtest.Level(events.LevelNone), guest),
		foldtest.Deliver("marked", 1, guest), foldtest.Event("r3", events.ConversationRead, "marked", foldtest.UpTo(1), guest),
		foldtest.Event("m", events.ConversationMarkedUnread, "marked", nil, guest),
		foldtest.Deliver("again", 1, guest), foldtest.Deliver("again", 2, guest), foldtest.Event("r4", events.ConversationRead, "again", foldtest.UpTo(2), guest),
		foldtest.Event("a", events.ConversationMarkedUnread, "again", foldtest.Seqs(2), guest),
		foldtest.Event("j", events.RoomJoined, "hall", nil, guest),
	)
	d.Fold(t)
	others := d.Badge(t, other)
	want := merging.Merged{Conversations: 5, Messages: 5, Rooms: 1, Events: 16}
	if diff := cmp.Diff(want, merge(t, d)); diff != "" {
		t.Errorf("the result (-want +got):\n%s", diff)
	}
	for id, want := range map[string]string{
		"tea": "2 1 1 all f", "both": "2 0 2 all f", "muted": "1 0 0 none f", "marked": "0 0 1 all t", "again": "1 0 2 all f", "hall": "left",
	} {
		if got := conversation(t, d, account, id); got != want {
			t.Errorf("%s of the account is %s, want %s", id, got, want)
		}
		if got := conversation(t, d, guest, id); got != "left" && id != "hall" {
			t.Errorf("%s of the guest is %s", id, got)
		}
	}
	if got := d.Badge(t, guest); got.Total != 0 {
		t.Errorf("the guest has %d unread", got.Total)
	}
	if diff := cmp.Diff(others, d.Badge(t, other)); diff != "" {
		t.Errorf("the badge of another user (-before +after):\n%s", diff)
	}
	before := d.Badge(t, account)
	if again := merge(t, d); again != (merging.Merged{Rooms: 1}) {
		t.Errorf("merged again: %+v", again)
	}
	// What comes later is moved by another merge.
	d.Append(t, foldtest.Deliver("tea", 4, guest))
	d.Fold(t)
	if late := merge(t, d); late.Messages != 1 || d.Badge(t, account).Total != before.Total+1 {
		t.Errorf("merged later: %+v, total %d after %d", late, d.Badge(t, account).Total, before.Total)
	}
	replaytest.Verify(t, d.Pool, d.Log, guest, account, other)
	if _, err := merging.Merge(t.Context(), merging.Config{Pool: d.Pool, Log: d.Log, Guest: guest, Account: guest}); !errors.Is(err, merging.ErrSame) {
		t.Errorf("a user merged into itself: %v", err)
	}
}

// After any history and a merge, the guest has no unread messages outside of rooms, a second merge
// moves nothing, and the tables agree with the log.
func TestMergeHistories(t *testing.T) {
	d := projectortest.New(t)
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		d.AppendAndFold(t, rt, foldtest.DrawNamedRooms(rt, number, []string{guest, account, other}))
		merge(t, d)
		if left := d.Lines(t, `SELECT conversation_id FROM badged.unread WHERE user_id = $1 AND NOT is_room`, guest); len(left) > 0 {
			rt.Fatalf("the guest still has %v", left)
		}
		total := d.Badge(t, account).Total
		if r := merge(t, d); r.Conversations != 0 || d.Badge(t, account).Total != total {
			rt.Fatalf("merged again: %+v", r)
		}
		replaytest.Verify(t, d.Pool, d.Log, guest, account, other)
		if t.Failed() {
			rt.Fatal("see above")
		}
	})
}
