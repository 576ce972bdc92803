package rig

import (
	"time"

	"github.com/badged/badged/tests/bench/measure"
)

// CPU is the processor time used up to a moment.
type CPU struct {
	at time.Time
	// busy is the time of the whole machine, hypervisor included.
	busy time.Duration
	// own is the time of this process and its live descendants, by program name.
	// Ended processes of Postgres count too.
	own map[string]time.Duration
}

// Names of programs in cpu.own.
const (
	programClient   = "client" // this process
	ProgramServer   = "badged"
	programPostgres = "postgres"
	programRedis    = "redis-server"
	ProgramFan      = "centrifugo"
)

// parts are the measured programs and their names in reports.
func parts() []struct{ name, program string } {
	return []struct{ name, program string }{
		{"badged", ProgramServer},
		{"Postgres", programPostgres},
		{"Redis", programRedis},
		{"centrifugo", ProgramFan},
		{"bench", programClient},
	}
}

// Quiet is how many cores other processes may use before a round counts as
// disturbed.
const Quiet = 0.2

// CPUMeasures returns the processor time per event between two moments, for each
// of the parts and for unrelated processes, which disturb the round. child is the
// time of descendants that started and ended in between. It returns no measures
// on systems that do not report processor time.
func CPUMeasures(from, to CPU, child time.Duration, events int) []measure.Measure {
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
	var all []measure.Measure
	for _, part := range parts() {
		if t, ok := used[part.program]; ok {
			all = append(all, measure.Of("CPU "+part.name, "µs/event", float64(t)/float64(time.Microsecond)/float64(events)))
		}
	}
	others := max(0, to.busy-from.busy-ours)
	return append(all, measure.Of(CPUOthers, "cores", float64(others)/float64(to.at.Sub(from.at))))
}

// CPUOthers measures how much other processes disturbed a round.
const CPUOthers = "CPU others"
