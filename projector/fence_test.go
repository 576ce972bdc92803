package projector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// A projector whose position another one has moved finds out before it writes
// anything, reads the new position and continues there.
func TestFence(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	first, second := d.newProjector(t, nil).partitions[0], d.newProjector(t, nil).partitions[0]
	for _, p := range []*partition{first, second} { // both know where it stands
		if _, _, err := p.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for seq := range int64(3) {
		d.append(t, foldtest.Deliver("c", seq+1, ann))
	}
	d.awaitSettled(t, 0)
	step(t, first, 2)
	before := d.dump(t)

	second.size.Events = 3
	if _, _, err := second.step(t.Context()); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the second ended with %v, want %v", err, store.ErrFenced)
	}
	if diff := cmp.Diff(before, d.dump(t)); diff != "" || d.position(t, 0) != first.cursor.Position {
		t.Errorf("the position is %v, want %v; rows (-before +after):\n%s", d.position(t, 0), first.cursor.Position, diff)
	}
	drain(t, second)
	if b := d.badge(t, ann); b.Total != 3 || b.Version != 3 {
		t.Errorf("total %d at version %d, want 3 at 3", b.Total, b.Version)
	}
	if n := count(second.projector.metrics.folded); n != 1 {
		t.Errorf("the second folded %d events, want the one that was left", n)
	}
}

// Two projectors fold the same partition at once, each as if it were the owner.
// Numbers and versions equal those of a single one, no event is folded twice, and
// the fence has rejected batches.
func TestTwoProjectorsOnOnePartition(t *testing.T) {
	d := newDatabase(t)
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2)}
	projectors := []*Projector{d.newProjector(t, nil), d.newProjector(t, nil)}
	for _, p := range projectors {
		drain(t, p.partitions[0]) // so that both start from the same position
	}
	single := storetest.NewMemory()
	var evs []events.Event
	versions := map[string]int64{}
	const rounds = 20
	for round := range rounds {
		evs = evs[:0]
		for i := range 30 {
			conversation := fmt.Sprint("c", i%4)
			evs = append(evs, foldtest.Deliver(conversation, int64(30*round+i+1), users[:1+i%3]...))
			if i%10 == 9 {
				evs = append(evs, foldtest.Event(fmt.Sprint("read ", round, i), events.ConversationRead, conversation, foldtest.UpTo(int64(30*round+i-5)), users[i%3]))
			}
		}
		d.append(t, evs...)
		for i := range evs {
			single.Commit(t, evs[i])
		}
		d.foldTogether(t, projectors)
		for _, user := range users {
			if v := d.badge(t, user).Version; v <= versions[user] {
				t.Errorf("round %d took %s from version %d to %d", round, user, versions[user], v)
			} else {
				versions[user] = v
			}
		}
	}

	for _, user := range users {
		if diff := cmp.Diff(single.Describe(user), d.describe(t, user)); diff != "" {
			t.Errorf("%s has (-one projector +two):\n%s", user, diff)
		}
		if diff := cmp.Diff(storetest.Versions(single.Users[user]), d.versions(t, user)); diff != "" {
			t.Errorf("versions of %s (-one projector +two):\n%s", user, diff)
		}
	}
	folded, fenced := 0, 0
	for _, p := range projectors {
		folded += count(p.metrics.folded)
		fenced += count(p.metrics.fenced)
	}
	if want := rounds * len(evs); folded != want {
		t.Errorf("%d events were folded, want %d", folded, want)
	}
	// Both knew the same position before the first round. The one that lost the
	// first round then knew an old position.
	if fenced == 0 {
		t.Error("the fence was never needed")
	}
}

// foldTogether lets projectors fold partition 0 to its end, all at once, in
// small batches.
func (d *database) foldTogether(t *testing.T, projectors []*Projector) {
	t.Helper()
	d.awaitSettled(t, 0)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for _, p := range projectors {
		p.partitions[0].size.Events = 7
		wg.Go(func() {
			<-start
			if _, err := p.partitions[0].drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
}

// The same with two projectors that run their loops, woken for every append.
func TestTwoLoopsOnOnePartition(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var loops, publishing sync.WaitGroup
	projectors := []*Projector{d.newProjector(t, nil), d.newProjector(t, nil)}
	for _, p := range projectors {
		loops.Go(func() { p.partitions[0].run(ctx) })
		publishing.Go(func() { p.publish(t.Context()) })
	}
	const messages = 100
	for seq := int64(1); seq <= messages; seq++ {
		d.append(t, foldtest.Deliver("c", seq, ann))
		for _, p := range projectors {
			p.Wake(0)
		}
	}
	// Either of the two publishes the last message, in any order.
	for told := false; !told; {
		for _, u := range d.bus.of(ann) {
			told = told || u.Total == messages
		}
		if !told {
			await(t, d.bus.published, "the last message")
		}
	}
	cancel()
	loops.Wait()
	for _, p := range projectors {
		close(p.updates)
	}
	publishing.Wait()

	if b := d.badge(t, ann); b.Total != messages || b.Version != messages {
		t.Errorf("total %d at version %d, want %d at %[3]d", b.Total, b.Version, messages)
	}
	if n := count(projectors[0].metrics.folded) + count(projectors[1].metrics.folded); n != messages {
		t.Errorf("%d events were folded, want %d", n, messages)
	}
	// The updates of both, put in order, follow one another without a gap.
	next := int64(0)
	for next < messages {
		advanced := false
		for _, u := range d.bus.of(ann) {
			if u.BaseVersion == next {
				next, advanced = u.Version, true
			}
		}
		if !advanced {
			t.Fatalf("no update starts at version %d", next)
		}
	}
}
