package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store/storetest"
)

// Folding any history with rooms in order equals the model, which has a set per
// user, after every event and for every user. The versions that clients see never
// fall, and grow when a client can see a difference.
func TestRoomsAgreeWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := foldtest.DrawRooms(t, users)
		generations, begin := drawGenerations(t, len(history))
		m, truth := storetest.NewMemory(begin...), &foldtest.Model{Generations: generations}
		for i, e := range history {
			before := map[string]string{}
			version := map[string]badge.Sums{}
			for _, id := range users {
				before[id], version[id] = m.Describe(id), m.User(id).Sums(m.Rooms)
			}
			m.Commit(t, history[i])
			truth.Events = append(truth.Events, e)
			if len(history) > 100 && i%50 > 0 && i < len(history)-1 {
				continue
			}
			for _, id := range users {
				if diff := cmp.Diff(truth.Describe(id), m.Describe(id)); diff != "" {
					t.Fatalf("after\n%s%s has (-want +got):\n%s", foldtest.Story(truth.Events), id, diff)
				}
				seen, grown := m.Describe(id) != before[id], m.User(id).Sums(m.Rooms).Version-version[id].Version
				if grown < 0 || seen && grown == 0 || grown > 1 {
					t.Fatalf("after\n%sthe version of %s grew by %d, but a client sees a difference: %v", foldtest.Story(truth.Events), id, grown, seen)
				}
				checkUnread(t, m, id)
			}
		}
	})
}

// checkUnread compares the total of a user with the sum of its parts.
func checkUnread(t *rapid.T, m *storetest.Memory, id string) {
	u, total := m.User(id), int64(0)
	for _, c := range u.Conversations {
		if c.Member() {
			v := c.ViewIn(m.Rooms[c.ID])
			total += v.Adds()
			continue
		}
		total += c.Adds()
	}
	if sums := u.Sums(m.Rooms); sums.Total != total {
		t.Fatalf("the total of %s is %d, that of its parts %d", id, sums.Total, total)
	}
}
