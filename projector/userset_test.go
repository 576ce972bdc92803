package projector

import (
	"fmt"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/keys"
)

// A retry for more users counts for the new ones, whichever generation the
// others had the event in, in one batch or in several, and whether its keys are in
// a block or in a run. Each user's window begins with the event that
// counted for it.
func TestRetriesForOtherUsers(t *testing.T) {
	ann, bob, cem := foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2)
	for rotations := range 3 {
		for _, merged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d rotations later, merged %v", rotations, merged), func(t *testing.T) {
				d := newDatabase(t)
				p := d.projector.partitions[0]
				mark := func(users ...string) events.Event {
					return foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil, users...)
				}
				read := 0
				fold := func(wait bool, evs ...events.Event) {
					t.Helper()
					d.append(t, evs...)
					read++
					d.append(t, foldtest.Event(fmt.Sprint("read ", read), events.ConversationRead, "c", foldtest.UpTo(int64(read)), ann, bob))
					if wait {
						drain(t, p)
						if merged {
							d.merge(t, p)
						}
					}
				}
				totals := func(want ...int64) {
					t.Helper()
					drain(t, p)
					for i, user := range []string{ann, bob, cem} {
						if got := d.badge(t, user).Total; got != want[i] {
							t.Errorf("the total of %s is %d, want %d", user, got, want[i])
						}
					}
				}
				fold(true, mark(ann))
				for range rotations {
					d.rotate(t, p)
				}
				fold(true, mark(ann, bob))
				fold(false, mark(bob, ann))
				fold(true, mark(ann, bob, cem, cem))
				d.append(t, mark(ann), mark(bob), mark(cem, bob), mark(ann, bob, cem))
				totals(0, 0, 1)
				d.checkReplay(t, ann, bob, cem)

				if rotations == 0 {
					return
				}
				for range keys.ProbedGenerations - rotations {
					d.rotate(t, p)
				}
				d.append(t, mark(ann, bob, cem)) // only for ann the key is forgotten
				totals(1, 0, 1)
				d.checkReplay(t, ann, bob, cem)
			})
		}
	}
}
