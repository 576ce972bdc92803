package replay

import (
	"bytes"
	"fmt"
	"log/slog"
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

// After any history with rooms, the tables equal the log for each user and for all users, also if
// verified one share at a time, and explanations equal the tables.
func TestVerifyRooms(t *testing.T) {
	d := projectortest.New(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)}
		history := foldtest.DrawNamedRooms(rt, n, users)
		indexed := rapid.Bool().Draw(rt, "with an index")
		for rest := history; len(rest) > 0; {
			k := rapid.IntRange(1, min(len(rest), 40)).Draw(rt, "in one transaction")
			d.Append(t, rest[:k]...)
			if rest = rest[k:]; indexed && rapid.IntRange(0, 3).Draw(rt, "end of a range") == 0 {
				d.EndRange(t, 0)
			}
		}
		d.Fold(t)
		if indexed {
			d.EndRange(t, 0)
			d.Append(t, foldtest.Event(fmt.Sprint("behind the range ", n), events.ConversationRead, "chat", foldtest.UpTo(1), foldtest.User(0, 9)))
			d.Fold(t)
			d.IndexLog(t, 0)
		}
		user := rapid.SampledFrom(users).Draw(rt, "verified")
		if differences, _ := verify(t, d, events.PartitionOf(user, foldtest.Partitions), VerifyOptions{Users: []string{user}}); len(differences) > 0 {
			rt.Fatalf("after\n%s%q", foldtest.Story(history), differences)
		}
		e := explain(t, d, user, Question{History: true, Delivered: 100})
		counted := int64(0)
		for _, c := range e.Conversations {
			counted += c.Adds
			if n := int64(len(c.Messages)) + c.MoreMessages; n != c.Unread || c.Unread <= maxCounted && c.MoreMessages > 0 {
				rt.Fatalf("after\n%s%s has %d unread messages in %s, explained are %d and %d more", foldtest.Story(history), user, c.Unread, c.ConversationID, len(c.Messages), c.MoreMessages)
			}
		}
		if !e.Agrees || counted != e.Total {
			rt.Fatalf("after\n%sthe explanation of %s is %+v, the table has %+v", foldtest.Story(history), user, e, e.Table)
		}
	})
	verifyAll(t, d, VerifyOptions{})
	verifyAll(t, d, VerifyOptions{Memory: 100_000})
}

// The events that name one member do not suffice to count the other members: if an earlier event of
// another conversation has the key of a join, the users of the join do not join.
func TestVerifyOneMemberKnowsWhoseJoinsAreRepeats(t *testing.T) {
	d := projectortest.New(t)
	ann, bob, cem := foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2)
	d.Append(t, foldtest.Event("first", events.RoomJoined, "lobby", nil, ann, bob))
	d.AppendEach(t,
		foldtest.Event("again", events.ConversationRead, "chat", foldtest.UpTo(1), cem),
		foldtest.Event("left", events.RoomJoined, "hall", nil, bob),
		foldtest.Event("again", events.RoomJoined, "lobby", nil, cem, foldtest.User(0, 3)),
		foldtest.Event("left", events.RoomLeft, "lobby", nil, bob),
	)
	d.Append(t, // one row
		foldtest.Event("in a batch", events.RoomPosted, "lobby", foldtest.Seq(1)),
		foldtest.Event("in a batch", events.ConversationRead, "chat", foldtest.UpTo(2), foldtest.User(0, 4)),
		foldtest.Event("in a batch", events.RoomJoined, "lobby", nil, foldtest.User(0, 4)))
	d.Fold(t)
	if differences, _ := verify(t, d, 0, VerifyOptions{Users: []string{ann}}); len(differences) > 0 {
		t.Errorf("differences: %q", differences)
	}
	// ann, bob and the fourth user.
	if e := explain(t, d, ann, Question{}); !e.Agrees || e.Conversations[0].Members != 3 {
		t.Errorf("the explanation is %+v", e)
	}
}

// A corruption of a room or of a membership is found for the member, for all users
// and a share at a time.
func TestVerifyFindsWrongRooms(t *testing.T) {
	d, member := projectortest.NewForRooms(t)
	verifyAll(t, d, VerifyOptions{})
	for i, c := range projectortest.RoomCorruptions() {
		t.Run(c.Name, func(t *testing.T) {
			defer d.Keep(t)()
			d.Exec(t, strings.ReplaceAll(c.SQL, "USER", "'"+member+"'"))
			want := slices.Clone(c.Want)
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "USER", fmt.Sprintf("%q", member))
			}
			of := map[string]VerifyOptions{"all users": {}, "the member": {Users: []string{member}}}
			if i%6 == 0 { // reads the log again for each share
				of["a share at a time"] = VerifyOptions{Memory: 1}
			}
			for name, options := range of {
				if got, _ := verify(t, d, 0, options); !slices.Equal(got, want) {
					t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(want, got))
				}
			}

			// Healing corrects only rows of the member, with a version above every version that
			// clients know.
			before := d.Badge(t, member)
			ofRoom := strings.HasPrefix(want[0], "room")
			update, healed := heal(t, d, member)
			defer d.Exec(t, `DELETE FROM badged.healed_users`)
			after := d.Badge(t, member)
			if healed == ofRoom || healed && (after.Version <= before.Version || update.Epoch != after.Epoch) {
				t.Errorf("healed %v: the badge was %+v, is %+v, the update %+v", healed, before, after, update)
			}
			if differences, _ := verify(t, d, 0, VerifyOptions{}); healed && len(differences) > 0 {
				t.Errorf("after healing: %q", differences)
			}
		})
	}
}

// The background sample finds a wrong room by its members, and does not heal it: only a rebuild
// does.
func TestSampleFindsWrongRooms(t *testing.T) {
	d, _ := projectortest.NewForRooms(t)
	var log bytes.Buffer
	s, err := NewSampler(SamplerConfig{
		Pool: d.Pool, Log: d.Log, Owner: &recordingOwner{}, Users: 16, SelfHeal: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Exec(t, `UPDATE badged.rooms_p00 SET changes = 9`)
	if err := s.verifyUsers(t.Context(), NewVerifier(d.Pool, d.Log), 0, 16); err != nil {
		t.Fatal(err)
	}
	if n := projectortest.Count(s.cfg.Metrics.mismatches); n != 1 || projectortest.Count(s.cfg.Metrics.healed) != 0 ||
		!strings.Contains(log.String(), "a room differs from the log") || !strings.Contains(log.String(), "changes is 9 in the table, 154 by the log") {
		t.Errorf("%d mismatches, it says %s", n, log.String())
	}
}

// The explanation of a room names the messages that count and their places in the log, and the
// events that do not count, also for an earlier time.
func TestExplainRoom(t *testing.T) {
	d, member := projectortest.NewForRooms(t)
	e := explain(t, d, member, Question{})
	c := e.Conversations[0]
	// 25 messages up to 50 were read, one was recalled, and one is the member's own.
	if c.ConversationID != "lobby" || c.Unread != 126 || c.Mentions != 2 || c.Adds != 126 || c.FirstUnreadSeq != 51 || c.Members != 3 || e.Total != 126 || !e.Agrees {
		t.Errorf("the explanation is %+v", e)
	}
	if m := c.Messages[0]; m.Seq != 305 || !m.Mentioned || m.ID != "post 305" || m.Type != events.RoomPosted || m.Position == "" || len(c.Messages) != maxCounted || c.MoreMessages != 26 {
		t.Errorf("the first message is %+v; %d, and %d more", m, len(c.Messages), c.MoreMessages)
	}
	if c.LastRead == nil || c.LastRead.ID != "read" || c.LastRead.UpToSeq != 50 {
		t.Errorf("last read by %+v", c.LastRead)
	}
	why := map[string]Why{}
	for _, u := range e.Uncounted {
		why[u.ID] = u.Why
	}
	if why["post 301"] != badge.WhyOwnMessage || len(why) != 1 {
		t.Errorf("uncounted are %v", why)
	}
	if past := explain(t, d, member, Question{At: time.Unix(1, 0)}); past.Total != 0 || len(past.Conversations) > 0 {
		t.Errorf("before all that it was %+v", past)
	}
	if history := explain(t, d, member, Question{History: true}).History; history.Steps[len(history.Steps)-1].Total != 126 {
		t.Errorf("the history is %+v", history)
	}
}
