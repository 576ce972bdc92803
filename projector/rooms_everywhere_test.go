package projector

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// Which ids users have makes no difference: a history with rooms, whose users are all in one
// partition or each in another, gives the numbers of the model, and the same versions.
func TestPartitionsOfMembersMakeNoDifference(t *testing.T) {
	together, apart := newDatabase(t), newDatabase(t)
	abstract := []string{"ann", "bob", "cem", "dan"}
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		history := foldtest.DrawNamedRooms(rt, n, abstract)
		var cuts []int
		for i := range history {
			if rapid.IntRange(0, 3).Draw(rt, "commit") == 0 {
				cuts = append(cuts, i)
			}
		}
		cuts = append(cuts, len(history))
		model := &foldtest.Model{Events: history}
		var numbers [2]map[string]string
		for k, d := range []*database{together, apart} {
			ids := map[string]string{}
			for i, name := range abstract {
				for j := 0; ids[name] == ""; j++ {
					if id := fmt.Sprintf("%s-%d-%d", name, n, j); events.PartitionOf(id, foldtest.Partitions) == k*i {
						ids[name] = id
					}
				}
			}
			began := 0
			for _, end := range cuts {
				d.append(t, withIDs(history[began:end], ids)...)
				d.fold(t)
				began = end
			}
			numbers[k] = map[string]string{}
			for _, name := range abstract {
				id := ids[name]
				tables := d.roomTables(t, events.PartitionOf(id, foldtest.Partitions), fmt.Sprintf("%% of %d", n))
				u := tables.Users[id]
				if u == nil {
					u = badge.NewUser(id)
				}
				got := storetest.DescribeIn(u, tables.Rooms)
				if diff := cmp.Diff(model.Describe(name), got); diff != "" {
					rt.Fatalf("after\n%s%s, with id %s, has (-want +got):\n%s", foldtest.Story(history), name, id, diff)
				}
				numbers[k][name] = fmt.Sprintf("version %d, %s", d.badge(t, id).Version, got)
			}
		}
		if diff := cmp.Diff(numbers[0], numbers[1]); diff != "" {
			rt.Fatalf("after\n%sin one partition and in several the users have (-one +several):\n%s", foldtest.Story(history), diff)
		}
	})
}

// withIDs returns a history with other ids of users.
func withIDs(history []events.Event, ids map[string]string) []events.Event {
	others := func(names []string) (all []string) {
		for _, name := range names {
			all = append(all, ids[name])
		}
		return all
	}
	var all []events.Event
	for _, e := range history {
		e.Data.UserIDs, e.Data.MentionedUserIDs = others(e.Data.UserIDs), others(e.Data.MentionedUserIDs)
		if e.Data.SenderID != "" {
			e.Data.SenderID = ids[e.Data.SenderID]
		}
		all = append(all, e)
	}
	return all
}

// One user who joins with a seq far ahead silences the room for that user only, wherever the
// others are and whenever they join. A row of the log with a seq in its join is put aside, also
// by a replay.
func TestOneJoinDoesNotSilenceARoom(t *testing.T) {
	d := newDatabase(t)
	far := joined("c", foldtest.User(0, 0))
	far.Data.UpToSeq = math.MaxInt64
	d.append(t, joined("c", foldtest.User(1, 0)), far)
	old := foldtest.User(2, 0)
	poisoned := joined("c", old)
	poisoned.Data.Seq = math.MaxInt64
	payload, err := poisoned.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	d.exec(t, `INSERT INTO badged.events_p02 (uuid, payload) VALUES ($1, convert_to($2, 'UTF8'))`, poisoned.Key(), string(payload))
	d.append(t, posted("c", 1))
	d.fold(t)
	d.append(t, joined("c", foldtest.User(0, 1), foldtest.User(2, 1), foldtest.User(3, 1)), posted("c", 2))
	d.fold(t)
	want := map[string]int64{foldtest.User(0, 0): 0, foldtest.User(1, 0): 2, old: 0, foldtest.User(0, 1): 1, foldtest.User(2, 1): 1, foldtest.User(3, 1): 1}
	for user, n := range want {
		if b := d.badge(t, user); b.Total != n {
			t.Errorf("%s in partition %d has %d unread, want %d", user, events.PartitionOf(user, foldtest.Partitions), b.Total, n)
		}
		replaytest.Verify(t, d.pool, d.log, user)
	}
	if got := d.lines(t, `SELECT DISTINCT last_seq::text FROM badged.rooms`); len(got) != 1 || got[0] != "2" {
		t.Errorf("the last message of the room is %s, want 2 in all partitions", got)
	}
}
