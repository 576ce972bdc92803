// Package scenarios has the scenarios of the benchmarks.
package scenarios

import (
	"github.com/badged/badged/events"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
)

// All returns all scenarios in the order of runs and reports. To add one,
// declare it and add a line here.
func All(r *rig.Rig, s contest.Scale) (all []contest.Scenario) {
	for _, scenario := range []func(*rig.Rig, contest.Scale) contest.Scenario{
		single,
		singleRate,
		sustained,
		calls,
		connections,
		rebuilding,
		rooms,
		smallRooms,
		roomReads,
		paths,
		endpoints,
		year,
		shards,
	} {
		all = append(all, scenario(r, s))
	}
	return all
}

// The endings of the names of sides that run another program.
const (
	OfBaseline = ", baseline"
	OfFan      = ", centrifugo"
)

// ofBuilds returns a side of this build, whose binary is "", and a side of the baseline build if it is
// given.
func ofBuilds(s contest.Scale, name string, side func(name, binary string) contest.Side) []contest.Side {
	sides := []contest.Side{side(name, "")}
	if s.Baseline != "" {
		sides = append(sides, side(name+OfBaseline, s.Baseline))
	}
	return sides
}

// defaultPartitions is the default of badged migrate up.
const defaultPartitions = 4

// event returns an event of a chat backend.
func event(id string, typ events.Type, data events.Data) events.Event {
	return events.Event{ID: id, Source: "bench", Type: typ, Data: data}
}
