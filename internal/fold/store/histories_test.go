package store_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/fold/store/storetest"
)

// simulation is badged without I/O: a log of several partitions, their folded
// state, and two projectors that both believe to own all of them.
type simulation struct {
	logs     [simulated][]events.Event
	tables   [simulated]*storetest.Memory
	position [simulated]int // in logs
	// generations are the generations of keys that have begun.
	generations [simulated][]store.Generation
	// known are the positions that each projector knows, or unknown.
	known [2][simulated]int
}

const (
	simulated = 3 // foldtest.Partitions
	unknown   = -1
)

// inhabitants take turns in the partitions.
var inhabitants = []string{"ann", "bob", "cem", "dan"}

func home(user string) int { return slices.Index(inhabitants, user) % simulated }

func newSimulation() *simulation {
	s := &simulation{}
	for p := range s.tables {
		s.generations[p] = []store.Generation{{Number: 1}}
		s.tables[p] = storetest.NewMemory(s.generations[p]...)
		s.known[0][p], s.known[1][p] = unknown, unknown
	}
	return s
}

// append appends the events of a transaction to each partition with its users.
func (s *simulation) append(evs []events.Event) {
	for _, e := range evs {
		for p := range s.logs {
			elsewhere := func(user string) bool { return home(user) != p }
			part := e
			part.Data.UserIDs = slices.DeleteFunc(slices.Clone(e.Data.UserIDs), elsewhere)
			part.Data.MentionedUserIDs = slices.DeleteFunc(slices.Clone(e.Data.MentionedUserIDs), elsewhere)
			if len(part.Data.UserIDs) > 0 {
				s.logs[p] = append(s.logs[p], part)
			}
		}
	}
}

// step makes a projector fold at most limit events of a partition, and begin a
// generation of keys if begins is true. It reports whether there were any
// events. A crash may roll back the transaction, or commit it unnoticed.
func (s *simulation) step(t *rapid.T, projector, p, limit int, begins bool, outcome string) bool {
	from := s.known[projector][p]
	if from == unknown {
		from = s.position[p]
	}
	rest := s.logs[p][from:]
	rest = rest[:min(limit, len(rest))]
	if len(rest) == 0 {
		return false
	}
	s.known[projector][p] = unknown
	if from != s.position[p] {
		return true // fenced off
	}
	tables, generations := s.tables[p].Clone(), s.generations[p]
	if begins {
		next := store.Generation{Number: len(generations) + 1, After: events.Position{Offset: int64(from)}}
		generations = append(generations, next)
		tables.Begin(next)
	}
	tables.Commit(t, rest...)
	if outcome == "rolled back" {
		return true
	}
	s.tables[p], s.generations[p] = tables, generations
	s.position[p] += len(rest)
	if outcome == "kept" {
		s.known[projector][p] = s.position[p]
	}
	return true
}

// model returns the model of a partition's log.
func (s *simulation) model(p int) *foldtest.Model {
	m := &foldtest.Model{Events: s.logs[p]}
	number := 0
	for i := range m.Events {
		for number < len(s.generations[p]) && s.generations[p][number].After.Offset <= int64(i) {
			number++
		}
		m.Generations = append(m.Generations, number)
	}
	return m
}

// Three publishers publish every type of event to users in several partitions,
// some twice, in transactions that overlap, commit late or are rolled back.
// Two projectors fold them in batches of any size, begin generations of keys,
// fence each other off, crash, and do not know whether they committed. In the
// end every number equals the model's, and every version that of folding one
// by one.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulation()
		var open [3][]events.Event
		for _, e := range foldtest.DrawTimes(t, foldtest.DrawHistory(t, foldtest.EveryType(), inhabitants)) {
			publisher := rapid.IntRange(0, len(open)-1).Draw(t, "publisher")
			open[publisher] = append(open[publisher], e)
			switch rapid.IntRange(0, 7).Draw(t, "end of a transaction") {
			case 0:
				open[publisher] = nil // rolled back
			case 1, 2, 3:
				s.append(open[publisher])
				open[publisher] = nil
			}
			if rapid.Bool().Draw(t, "fold") {
				s.step(t, rapid.IntRange(0, 1).Draw(t, "projector"), rapid.IntRange(0, simulated-1).Draw(t, "partition"),
					rapid.IntRange(1, 6).Draw(t, "batch"), rapid.IntRange(0, 3).Draw(t, "begin a generation") == 0, rapid.SampledFrom([]string{"kept", "kept", "kept in the dark", "rolled back"}).Draw(t, "outcome"))
			}
		}
		for _, evs := range open {
			s.append(evs)
		}
		for p := range simulated {
			for s.step(t, 0, p, 4, false, "kept") {
			}
		}

		for p, log := range s.logs {
			truth, got, single := s.model(p), s.tables[p], storetest.NewMemory(s.generations[p]...)
			for i := range log {
				single.Commit(t, log[i])
			}
			for _, id := range inhabitants {
				if diff := cmp.Diff(truth.Describe(id), got.Describe(id)); diff != "" {
					t.Fatalf("after\n%s%s has (-want +got):\n%s", foldtest.Story(log), id, diff)
				}
				if diff := cmp.Diff(single.Versions(id), got.Versions(id)); diff != "" {
					t.Fatalf("after\n%sthe versions of %s are (-one by one +got):\n%s", foldtest.Story(log), id, diff)
				}
			}
		}
	})
}
