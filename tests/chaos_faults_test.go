//go:build chaos

package tests

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/privateredis"
)

// chaosFault disturbs one part of the system until it is healed.
type chaosFault struct {
	// target is the disturbed part. At most one fault at a time has the same target.
	target, what string
	begin        func() (heal func())
}

// disturb begins random faults, most of which overlap, and heals them.
func (c *chaos) disturb() {
	c.t.Helper()
	type active struct {
		chaosFault
		heal func()
	}
	var now []active
	heal := func(i int) {
		f := now[i]
		now = slices.Delete(now, i, i+1)
		f.heal()
		c.note("healed: %s %s", f.target, f.what)
	}
	for began := time.Now(); time.Since(began) < *chaosFor && c.ctx.Err() == nil && !c.t.Failed(); {
		kinds := c.kindsOfFaults()
		faults := kinds[c.random.IntN(len(kinds))]
		f := faults[c.random.IntN(len(faults))]
		busy := slices.ContainsFunc(now, func(a active) bool { return a.target == f.target })
		switch {
		case len(now) > 0 && (busy || len(now) >= 3 || c.random.IntN(2) == 0):
			heal(c.random.IntN(len(now)))
		default:
			c.note("fault: %s %s", f.target, f.what)
			c.faults++
			now = append(now, active{f, f.begin()})
		}
		c.proceed()
		c.revive(func(p *chaosProgram) bool {
			return slices.ContainsFunc(now, func(a active) bool { return a.target == p.name })
		})
	}
	for len(now) > 0 {
		heal(0)
	}
	c.note("the faults are over")
}

// proceed waits for a short random time, or until some events were acknowledged.
func (c *chaos) proceed() {
	until := c.acknowledged.Load() + c.random.Int64N(150)
	limit := time.After(time.Duration(100+c.random.IntN(2000)) * time.Millisecond)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for c.acknowledged.Load() < until {
		select {
		case <-look.C:
		case <-limit:
			return
		}
	}
}

// kindsOfFaults returns the faults by kind; each kind is drawn with the same probability.
func (c *chaos) kindsOfFaults() [][]chaosFault {
	var killed, frozen, stopped, links []chaosFault
	for _, p := range c.programs {
		killed = append(killed, chaosFault{p.name, "killed", func() func() { p.p.kill(); return func() { c.start(p) } }})
		frozen = append(frozen, chaosFault{p.name, "frozen", func() func() {
			p.p.signal(syscall.SIGSTOP)
			return func() { p.p.signal(syscall.SIGCONT) }
		}})
		stopped = append(stopped, chaosFault{p.name, "stopped", func() func() {
			p.p.signal(syscall.SIGTERM)
			return func() {
				if <-p.p.done; p.p.err != nil {
					c.note("%s ended with %v", p.name, p.p.err)
				}
				c.start(p)
			}
		}})
	}
	var postgres, redis []chaosFault
	for i, server := range c.shards {
		postgres = append(postgres, c.faultsOfPostgres(fmt.Sprintf("shard %c", 'a'+i), server)...)
	}
	outbox := c.faultsOfPostgres("the outbox", c.outbox)
	for name, server := range map[string]*privateredis.Server{"Redis": c.bus, "the broker": c.broker} {
		redis = append(redis,
			chaosFault{name, "killed", func() func() {
				server.Kill()
				return func() {
					if err := server.Restart(c.t.Context()); err != nil {
						c.t.Error(err)
					}
				}
			}},
			chaosFault{name, "frozen", func() func() { return pause(c.t, server) }})
	}
	slices.SortFunc(redis, byName)
	all := faults()
	for _, name := range slices.Sorted(maps.Keys(c.links)) {
		for _, what := range slices.Sorted(maps.Keys(all)) {
			links = append(links, chaosFault{name, what, func() func() { return all[what](c.links[name]) }})
		}
	}
	return [][]chaosFault{killed, frozen, stopped, postgres, postgres, outbox, redis, links, links}
}

func byName(a, b chaosFault) int {
	if a.target+a.what < b.target+b.what {
		return -1
	}
	return 1
}

func (c *chaos) faultsOfPostgres(name string, server *pgtest.Server) []chaosFault {
	return []chaosFault{
		{name, "killed", func() func() {
			server.Kill()
			return func() {
				if err := server.Restart(c.t.Context()); err != nil {
					c.t.Error(err)
				}
			}
		}},
		{name, "frozen", func() func() { server.Pause(); return server.Resume }},
	}
}

// start starts a program again without waiting until it is ready.
func (c *chaos) start(p *chaosProgram) { p.p = start(c.t, nil, p.args...) }

// revive restarts programs that have ended by themselves, as a supervisor would. It does not
// restart programs that a fault has ended.
func (c *chaos) revive(disturbed func(*chaosProgram) bool) {
	for _, p := range c.programs {
		if disturbed(p) {
			continue
		}
		select {
		case <-p.p.done:
			c.note("%s ended by itself: %v, and starts again", p.name, p.p.err)
			c.start(p)
		default:
		}
	}
}
