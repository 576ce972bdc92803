// Package scenarios has the scenarios of the benchmarks, a file each.
package scenarios

import "github.com/badged/badged/tests/bench/contest"

// All returns all scenarios in the order of runs and reports. To add one,
// write a file and add a line here.
func All() []contest.Scenario {
	return []contest.Scenario{
		single(),
		singleRate(),
		sustained(),
		calls(),
		connections(),
		reads(),
		loadScenario(),
		rebuilding(),
		rooms(),
		smallRooms(),
		roomReads(),
		paths(),
		push(),
		webhooks(),
		endpoints(),
		year(),
		shards(),
	}
}
