package projector

import (
	"testing"

	"github.com/badged/badged/internal/devtest/foldtest"
)

// A partition with hidden events reads again when a batch of another partition
// has committed, which may have hidden them, also if that happened between its
// read and its wait.
func TestHiddenEventsAwaitTheNextCommit(t *testing.T) {
	d := newDatabase(t)
	folding, waiting := d.projector.partitions[0], d.projector.partitions[1]
	ann := foldtest.User(0, 0)
	woken := func() bool {
		select {
		case <-waiting.wakes:
			return true
		default:
			return false
		}
	}
	foldOne := func(seq int64) {
		d.append(t, foldtest.Deliver("c", seq, ann))
		d.awaitVisible(t, 0)
		step(t, folding, 10)
	}

	foldOne(1)
	if woken() {
		t.Error("a partition that does not wait was woken")
	}
	step(t, waiting, 10) // reads
	waiting.awaitSettled()
	if woken() {
		t.Error("it was woken although nothing has committed since it read")
	}
	foldOne(2)
	if !woken() {
		t.Error("it was not woken by a commit while it waited")
	}
	foldOne(3)
	if woken() {
		t.Error("it was woken although it did not wait any more")
	}
	step(t, waiting, 10)
	foldOne(4)
	waiting.awaitSettled()
	if !woken() {
		t.Error("it was not woken by a commit between its read and its waiting")
	}
	folding.awaitSettled()
	if len(folding.wakes) != 0 {
		t.Error("a batch of its own woke it")
	}
}
