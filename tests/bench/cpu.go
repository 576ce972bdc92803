package main

import "time"

// cpu is how much processor time has been used by some moment.
type cpu struct {
	at time.Time
	// busy is that of the whole machine, hypervisor included.
	busy time.Duration
	// own is that of this process and its descendants, by name of program, as
	// long as they live; those of Postgres also count when they have ended.
	own map[string]time.Duration
}

// Names of programs in cpu.own.
const (
	programClient   = "client" // this one
	programServer   = "badged"
	programPostgres = "postgres"
	programRedis    = "redis-server"
)

// parts are the programs that take part, as they are called in a report.
func parts() []struct{ name, program string } {
	return []struct{ name, program string }{
		{"badged", programServer},
		{"Postgres", programPostgres},
		{"Redis", programRedis},
		{"bench", programClient},
	}
}

// quiet is how many cores others may use before a round counts as disturbed.
const quiet = 0.2

// cpuMeasures tells what was used from one moment to another for so many
// events: by each of the parts, and by processes that have nothing to do with
// it, which disturb the round. child is what descendants used that came and
// went in between. There are none where the system does not tell.
func cpuMeasures(from, to cpu, child time.Duration, events int) []measure {
	if from.own == nil || to.own == nil || events == 0 {
		return nil
	}
	ours := child
	used := map[string]time.Duration{}
	for program, t := range to.own {
		used[program] = t - from.own[program]
		ours += used[program]
	}
	used[programClient] += child
	var all []measure
	for _, part := range parts() {
		if t, ok := used[part.program]; ok {
			all = append(all, measure{"CPU " + part.name, "µs/event", float64(t) / float64(time.Microsecond) / float64(events)})
		}
	}
	others := max(0, to.busy-from.busy-ours)
	return append(all, measure{cpuOthers, "cores", float64(others) / float64(to.at.Sub(from.at))})
}

// cpuOthers is the measure that tells whether others disturbed a round.
const cpuOthers = "CPU others"
