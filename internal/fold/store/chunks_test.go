package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// describeChunks returns the closed chunks of a room as text.
func describeChunks(r *badge.Room) (lines []string) {
	for _, c := range r.Closed {
		lines = append(lines, fmt.Sprintf("up to %d: live %s, all %s, recalled %s", c.Bound, &c.Live, &c.All, &c.Recalled))
	}
	return lines
}

// A room whose messages are far apart has a chunk for hundreds of them, and the same chunks
// however its messages are cut into batches. Late messages, repeats, recalls, members who
// join further back and resets give the numbers of the model.
func TestClosedChunksAreMerged(t *testing.T) {
	const n, distance = 2500, 1000
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		history := []events.Event{foldtest.Event("join", events.RoomJoined, "hall", nil, "ann")}
		add := func(e events.Event) { history = append(history, e) }
		for i := int64(1); i <= n; i++ {
			e := foldtest.Event(fmt.Sprint("post ", i), events.RoomPosted, "hall", foldtest.Seq(i*distance))
			switch rng.IntN(60) {
			case 0:
				add(foldtest.Event(fmt.Sprint("recall ", i), events.RoomRecalled, "hall", foldtest.Seq((1+rng.Int64N(i))*distance)))
			case 1:
				e.Data.MentionsAll = true
			case 2:
				e.Data.SenderID = "ann"
			case 3:
				add(foldtest.Event(fmt.Sprint("late ", i), events.RoomPosted, "hall", foldtest.Seq(rng.Int64N(i)*distance+1+rng.Int64N(distance-1))))
			case 4:
				add(foldtest.Event(fmt.Sprint("again ", i), events.RoomPosted, "hall", foldtest.Seq((1+rng.Int64N(i))*distance)))
			}
			add(e)
		}
		add(foldtest.Event("join of bob", events.RoomJoined, "hall", foldtest.UpTo(700*distance), "bob"))
		add(foldtest.Event("reset of ann", events.ConversationReset, "hall", foldtest.UpTo(900*distance), "ann"))

		single, cut := storetest.NewMemory(), storetest.NewMemory()
		for i := range history {
			single.Commit(t, history[i])
		}
		for rest := history; len(rest) > 0; {
			size := min(len(rest), 1+rng.IntN(300))
			cut.Commit(t, rest[:size]...)
			rest = rest[size:]
		}
		if diff := cmp.Diff(describeChunks(single.Rooms["hall"]), describeChunks(cut.Rooms["hall"])); diff != "" {
			t.Errorf("with seed %d the chunks depend on the batches (-one by one +cut):\n%s", seed, diff)
		}
		truth := &foldtest.Model{Events: history}
		for _, id := range []string{"ann", "bob"} {
			if diff := cmp.Diff(truth.Describe(id), cut.Describe(id)); diff != "" {
				t.Errorf("with seed %d %s has (-want +got):\n%s", seed, id, diff)
			}
		}
		if chunks := len(cut.Rooms["hall"].Closed); chunks > n/200 {
			t.Errorf("with seed %d, %d messages have %d closed chunks", seed, n, chunks)
		}
		ended := slices.Concat(history, []events.Event{foldtest.Event("end", events.RoomReset, "hall", foldtest.Seq(1100*distance))})
		cut.Commit(t, ended[len(history):]...)
		truth.Events = ended
		for _, id := range []string{"ann", "bob"} {
			if diff := cmp.Diff(truth.Describe(id), cut.Describe(id)); diff != "" {
				t.Errorf("with seed %d, after the end of the room, %s has (-want +got):\n%s", seed, id, diff)
			}
		}
	}
}
