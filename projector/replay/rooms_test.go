package replay

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// Any history with rooms leaves tables that equal the log, for each user and for all
// at once, also a share at a time, and explanations that equal the tables.
func TestVerifyRooms(t *testing.T) {
	d := projectortest.New(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)}
		history := foldtest.DrawNamedRooms(rt, n, users)
		for rest := history; len(rest) > 0; {
			k := rapid.IntRange(1, min(len(rest), 40)).Draw(rt, "in one transaction")
			d.Append(t, rest[:k]...)
			rest = rest[k:]
		}
		d.Fold(t)
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

// A corruption of a room or of a membership is found for the member, for all users
// and a share at a time.
func TestVerifyFindsWrongRooms(t *testing.T) {
	d, member := projectortest.NewForRooms(t)
	verifyAll(t, d, VerifyOptions{})
	for _, c := range projectortest.RoomCorruptions() {
		t.Run(c.Name, func(t *testing.T) {
			defer d.Keep(t)()
			d.Exec(t, strings.ReplaceAll(c.SQL, "USER", "'"+member+"'"))
			want := slices.Clone(c.Want)
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "USER", fmt.Sprintf("%q", member))
			}
			for name, options := range map[string]VerifyOptions{
				"all users": {}, "a share at a time": {Memory: 1}, "the member": {Users: []string{member}},
			} {
				if got, _ := verify(t, d, 0, options); !slices.Equal(got, want) {
					t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(want, got))
				}
			}
		})
	}
}
