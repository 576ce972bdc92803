package projector

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/replay"
)

// at returns an event as the log took it so long after noon.
func at(after time.Duration, e events.Event) events.Event {
	e.AppendedAt = noon.Add(after)
	return e
}

// What an app says is believed for a minute, and no longer, whatever it says
// again meanwhile.
func TestReadsAheadOfTheLog(t *testing.T) {
	n := 0
	reads := func(upTo int64) events.Event {
		n++
		return event(fmt.Sprint("read ", n), events.ConversationRead, "c", byApp(upTo), "ann")
	}
	message := func(seq int64) events.Event { return deliver("c", seq, "ann") }
	const sec = time.Second
	for _, tc := range []struct {
		name   string
		story  []events.Event
		unread string // of c, with the read position
	}{
		{"the first message of a user", []events.Event{at(0, reads(1)), at(sec, message(1))}, "{} above 1"},
		{"the next message", []events.Event{at(0, message(1)), at(sec, reads(2)), at(2*sec, message(2))}, "{} above 2"},
		{"a message in the last instant", []events.Event{at(0, reads(9)), at(60*sec, message(9))}, "{} above 9"},
		{"a message after it", []events.Event{at(0, reads(9)), at(60*sec+time.Microsecond, message(9))}, "{[9,10)} above 0"},
		{"a message beyond", []events.Event{at(0, reads(2)), at(sec, message(3))}, "{[3,4)} above 2"},
		{"messages out of order", []events.Event{at(0, reads(3)), at(sec, message(3)), at(2*sec, message(1)), at(3*sec, message(4))}, "{[4,5)} above 3"},
		{"a forged read", []events.Event{at(0, message(1)), at(sec, reads(math.MaxInt64)), at(2*sec, message(2)), at(62*sec, message(3))}, "{[3,4)} above 2"},
		{"a forged read, and an honest one later", []events.Event{
			at(0, reads(math.MaxInt64)), at(50*sec, reads(1)), at(70*sec, message(2)), at(71*sec, message(1)),
		}, "{[2,3)} above 1"},
		{"a large read, and a small one at once", []events.Event{at(0, reads(5)), at(sec, reads(2)), at(2*sec, message(4))}, "{} above 4"},
		{"a small read, and a large one later", []events.Event{at(0, reads(2)), at(50*sec, reads(5)), at(100*sec, message(4))}, "{} above 4"},
		{"the same forged read again and again", []events.Event{
			at(0, reads(math.MaxInt64)), at(30*sec, reads(math.MaxInt64)), at(91*sec, message(1)),
		}, "{[1,2)} above 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMemory()
			for i := range tc.story {
				m.commit(t, tc.story[i:i+1])
			}
			c := m.rows["ann"].Conversations["c"]
			if got := fmt.Sprintf("%s above %d", c.Unread.String(), c.ReadSeq); got != tc.unread {
				t.Errorf("after\n%sunread is %s, want %s", story(tc.story), got, tc.unread)
			}
		})
	}
}

// An app can make up conversations without end: they leave no row, and of what
// is remembered of them the oldest gives way.
func TestClaimsAreBounded(t *testing.T) {
	m := newMemory()
	for i := range 10 * badge.MaxClaims {
		m.commit(t, []events.Event{at(0, event(fmt.Sprint(i), events.ConversationRead, fmt.Sprint("made up ", i), byApp(1), "ann"))})
	}
	ann := m.rows["ann"]
	if len(ann.Claims) != badge.MaxClaims || ann.Claims[0].Conversation != fmt.Sprint("made up ", 9*badge.MaxClaims) {
		t.Errorf("%d claims, the first %+v", len(ann.Claims), ann.Claims[0])
	}
	if ann.Version != 0 {
		t.Errorf("the version is %d", ann.Version)
	}
	for _, c := range ann.Conversations {
		if c.Touched {
			t.Errorf("%s has a row", c.ID)
		}
	}
	// The next minute they are gone.
	m.commit(t, []events.Event{at(2*time.Minute, deliver("c", 1, "ann"))})
	if u := m.rows["ann"]; len(u.Claims) != 0 || u.Total != 1 {
		t.Errorf("claims %v, total %d", u.Claims, u.Total)
	}
}

// Claims of one conversation never say the same, and say together what each of
// them said: nothing reaches further, or lasts longer, than a read did.
func TestClaimsSayWhatWasRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var kept badge.Claims
		var all []badge.Claim
		for range rapid.IntRange(1, badge.MaxClaims).Draw(t, "reads") {
			c := badge.Claim{
				Conversation: rapid.SampledFrom([]string{"c", "d"}).Draw(t, "conversation"),
				UpTo:         rapid.Int64Range(1, 9).Draw(t, "up to"),
				Until:        rapid.Int64Range(1, 9).Draw(t, "until"),
			}
			kept.Add(c)
			all = append(all, c)
		}
		for now := range int64(11) {
			live := slices.Clone(kept)
			live.Lapse(now)
			for seq := range int64(11) {
				want := int64(0)
				for _, c := range all {
					if c.Conversation == "c" && c.Until >= now {
						want = max(want, min(c.UpTo, seq))
					}
				}
				if got := live.Reach("c", seq); got != want {
					t.Fatalf("message %d at %d is read up to %d, want %d: of %v is kept %v", seq, now, got, want, all, kept)
				}
			}
		}
		again, err := badge.ParseClaims(kept.String())
		if diff := cmp.Diff(kept, again, cmp.AllowUnexported(badge.Claim{})); diff != "" || err != nil {
			t.Fatalf("as text (-before +after), %v:\n%s", err, diff)
		}
	})
}

// The tables keep what was read ahead: for the next batch of another owner, for
// a check, for a repair, and behind what is archived.
func TestClaimsAreKept(t *testing.T) {
	d := newDatabase(t)
	ann, bob := userIn(0, 0), userIn(0, 1)
	d.appendAgo(t, time.Hour,
		event("1", events.ConversationRead, `c "1"`, byApp(2), ann),
		event("2", events.ConversationRead, "other", byApp(9), ann),
		deliver("c", 1, bob), event("3", events.ConversationRead, "c", byApp(2), bob))
	d.fold(t)
	want := []string{
		ann + ` 0 [{"until": 1773142260000000, "up_to_seq": 2, "conversation_id": "c \"1\""}, {"until": 1773142260000000, "up_to_seq": 9, "conversation_id": "other"}]`,
		bob + ` 2 [{"until": 1773142260000000, "up_to_seq": 2, "conversation_id": "c"}]`,
	}
	rows := func() []string {
		return d.lines(t, `SELECT concat_ws(' ', user_id, version, claims) FROM badged.users WHERE partition_id = 0 ORDER BY user_id`)
	}
	same(t, "rows", want, rows())
	d.verifyAll(t, replay.VerifyOptions{})

	d.exec(t, `UPDATE badged.users SET claims = '[{"until": 1, "up_to_seq": 2, "conversation_id": "c"}]' WHERE user_id = $1`, bob)
	if differences, _ := d.verify(t, 0, replay.VerifyOptions{}); len(differences) != 1 {
		t.Errorf("differences: %v", differences)
	}
	d.exec(t, `DELETE FROM badged.users WHERE user_id = $1`, ann)
	d.rebuild(t, nil)
	same(t, "rows after a rebuild", want, rows())
	d.exec(t, `DELETE FROM badged.users WHERE user_id = $1`, ann)
	if _, mended, err := replay.NewVerifier(d.pool, d.log).Heal(t.Context(), ann); !mended || err != nil {
		t.Errorf("mended: %v, %v", mended, err)
	}
	d.verifyAll(t, replay.VerifyOptions{})

	dir := t.TempDir()
	d.cut(t, 0)
	d.archived(t, dir)
	d.projector = d.newProjector(t, nil) // who remembers no rows
	d.appendAgo(t, time.Hour-time.Minute, deliver(`c "1"`, 2, ann), deliver("c", 2, bob))
	d.appendAgo(t, time.Hour-2*time.Minute, deliver("other", 9, ann), deliver("other", 1, bob))
	d.fold(t)
	same(t, "unread", []string{"other: 1", "other: 1"}, d.unread(t))
	same(t, "claims", []string{}, d.lines(t, `SELECT user_id FROM badged.users WHERE claims IS NOT NULL`))
	d.checkArchived(t, dir, ann, bob)
}
