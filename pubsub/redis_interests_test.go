package pubsub

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// modelBroker models Redis, which answers on request, and its listener's
// connection.
type modelBroker struct {
	commands   []modelCommand // not answered yet
	subscribed map[string]bool
}

type modelCommand struct {
	channel   string
	subscribe bool
}

// joined reports whether Redis has the channel and no command about it is pending.
func (b *modelBroker) joined(channel string) bool {
	return b != nil && b.subscribed[channel] &&
		!slices.ContainsFunc(b.commands, func(m modelCommand) bool { return m.channel == channel })
}

// TestInterests drives redisInterests with joins, leaves, connections and answers in any order.
// It checks that no channel is wrongly reported as joined, that a gap is reported when a joined
// channel missed something and is joined again, and that in the end Redis has exactly the wanted
// channels.
func TestInterests(t *testing.T) {
	// A forgotten answer shows up in fewer than one in the hundred runs of a
	// Check.
	for range 20 {
		rapid.Check(t, checkInterests)
	}
}

const modelChannels = 2 // few, so that much happens to each

func checkInterests(t *rapid.T) {
	s := newRedisInterests()
	var broker *modelBroker // nil while down
	wanted := map[string]bool{}
	missed := map[string]bool{} // was joined or given up, and has not been joined since
	gapOwed := false
	waits := map[string][]<-chan struct{}{}

	channel := func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, modelChannels-1).Draw(t, "channel")) }
	joined := func(c string) bool { return wanted[c] && s.pending([]string{c}, false) == nil }
	check := func() {
		for c := range wanted {
			if joined(c) && !broker.joined(c) {
				t.Fatalf("channel %s is reported as joined, but is not", c)
			}
			waits[c] = slices.DeleteFunc(waits[c], func(done <-chan struct{}) bool {
				select {
				case <-done:
					return true
				default:
					return false
				}
			})
			if joined(c) && len(waits[c]) > 0 {
				t.Fatalf("channel %s is joined, but a call still waits", c)
			}
		}
	}
	write := func() {
		subscribe, unsubscribe := s.changes()
		for _, c := range subscribe {
			broker.commands = append(broker.commands, modelCommand{c, true})
		}
		for _, c := range unsubscribe {
			broker.commands = append(broker.commands, modelCommand{c, false})
		}
	}
	answer := func() {
		c := broker.commands[0]
		broker.commands = broker.commands[1:]
		broker.subscribed[c.channel] = c.subscribe
		got := s.acknowledge()
		gapOwed = gapOwed || slices.ContainsFunc(slices.Collect(maps.Keys(missed)), joined)
		maps.DeleteFunc(missed, func(c string, _ bool) bool { return joined(c) })
		due := gapOwed && len(missed) == 0
		if got != due {
			t.Fatalf("a gap is due: %v, want %v", got, due)
		}
		gapOwed = gapOwed && !due
	}
	connect := func() {
		broker = &modelBroker{subscribed: map[string]bool{}}
		s.begin()
	}

	t.Repeat(map[string]func(*rapid.T){
		"": func(*rapid.T) { check() },
		"join": func(t *rapid.T) {
			c := channel(t)
			wanted[c] = true
			s.want(c)
			if batch := s.pending([]string{c}, false); batch != nil {
				waits[c] = append(waits[c], batch.done)
			}
		},
		"leave": func(t *rapid.T) {
			c := channel(t)
			delete(wanted, c)
			delete(missed, c)
			s.unwant(c)
		},
		"give up": func(t *rapid.T) {
			c := channel(t)
			if s.pending([]string{c}, true) != nil {
				missed[c] = true
			}
		},
		"connect or disconnect": func(*rapid.T) {
			if broker == nil {
				connect()
				return
			}
			for c := range wanted {
				missed[c] = missed[c] || joined(c)
			}
			maps.DeleteFunc(missed, func(_ string, is bool) bool { return !is })
			broker = nil
			s.end()
		},
		"write": func(*rapid.T) {
			if broker != nil && len(s.changed) > 0 {
				<-s.changed
				write()
			}
		},
		"answer": func(*rapid.T) {
			if broker != nil && len(broker.commands) > 0 {
				answer()
			}
		},
	})

	if broker == nil {
		connect()
	}
	for len(s.changed) > 0 || len(broker.commands) > 0 {
		select {
		case <-s.changed:
			write()
		default:
			answer()
		}
		check()
	}
	for c := range modelChannels {
		name := fmt.Sprint(c)
		if broker.subscribed[name] != wanted[name] || joined(name) != wanted[name] || s.wants(name) != wanted[name] {
			t.Fatalf("channel %s: wanted %v, subscribed %v, joined %v", name, wanted[name], broker.subscribed[name], joined(name))
		}
	}
	if len(s.wanted) != len(wanted) || len(s.missed)+len(s.unanswered)+len(missed) != 0 {
		t.Fatalf("something is left: %d channels, %d missed, %d batches", len(s.wanted), len(s.missed), len(s.unanswered))
	}
}
