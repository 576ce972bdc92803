package pubsub

import (
	"fmt"
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

// TestInterests drives redisInterests with joins, leaves, connections and
// answers in any order. It checks that no channel is reported as joined that
// is not, that a gap is reported when a joined channel missed something and is
// joined again, and that in the end Redis has exactly the wanted channels.
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

	channel := func() string { return fmt.Sprint(rapid.IntRange(0, modelChannels-1).Draw(t, "channel")) }
	// settled reports whether Redis has the channel and no command about it is
	// pending.
	settled := func(c string) bool {
		return broker != nil && broker.subscribed[c] &&
			!slices.ContainsFunc(broker.commands, func(m modelCommand) bool { return m.channel == c })
	}
	checkWaits := func() {
		for c, chans := range waits {
			for _, ready := range chans {
				select {
				case <-ready:
					if wanted[c] && !settled(c) {
						t.Fatalf("channel %s is reported as joined, but is not", c)
					}
				default:
					if !wanted[c] || settled(c) {
						t.Fatalf("channel %s is joined or left, but a call still waits", c)
					}
					continue
				}
			}
			waits[c] = slices.DeleteFunc(chans, func(ready <-chan struct{}) bool {
				select {
				case <-ready:
					return true
				default:
					return false
				}
			})
		}
	}
	write := func(limit int) {
		subscribe, unsubscribe := s.changes(limit)
		if n := len(subscribe) + len(unsubscribe); n > limit {
			t.Fatalf("%d changes, want at most %d", n, limit)
		}
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
		if broker.subscribed[c.channel] == c.subscribe {
			t.Fatalf("a command changes nothing: %+v", c)
		}
		broker.subscribed[c.channel] = c.subscribe
		s.acknowledge(c.channel)
		if missed[c.channel] && wanted[c.channel] && settled(c.channel) {
			delete(missed, c.channel)
			gapOwed = true
		}
	}
	checkGap := func() {
		due := gapOwed && len(missed) == 0
		if got := s.gapIsDue(); got != due {
			t.Fatalf("a gap is due: %v, want %v", got, due)
		}
		if due {
			gapOwed = false
		}
	}
	connect := func() {
		broker = &modelBroker{subscribed: map[string]bool{}}
		s.begin()
	}
	disconnect := func() {
		for c := range wanted {
			if settled(c) {
				missed[c] = true
			}
		}
		broker = nil
		s.end()
	}

	t.Repeat(map[string]func(*rapid.T){
		"": func(*rapid.T) {
			checkWaits()
			checkGap()
		},
		"join": func(*rapid.T) {
			c := channel()
			wanted[c] = true
			chans := s.want(c)
			if settled(c) != (len(chans) == 0) {
				t.Fatalf("joining channel %s, which is joined: %v, waits for %d answers", c, settled(c), len(chans))
			}
			waits[c] = append(waits[c], chans...)
		},
		"leave": func(*rapid.T) {
			c := channel()
			delete(wanted, c)
			delete(missed, c)
			s.unwant(c)
		},
		"give up": func(*rapid.T) {
			c := channel()
			want := wanted[c] && !settled(c)
			if want {
				missed[c] = true
			}
			if got := s.giveUp(c); got != want {
				t.Fatalf("giving up on channel %s leaves something to wait for: %v, want %v", c, got, want)
			}
		},
		"connect or disconnect": func(*rapid.T) {
			if broker == nil {
				connect()
			} else {
				disconnect()
			}
		},
		"write": func(*rapid.T) {
			if broker != nil && len(s.changed) > 0 {
				<-s.changed
				write(rapid.IntRange(1, 3).Draw(t, "limit"))
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
			write(2)
		default:
			answer()
		}
		checkWaits()
	}
	checkGap()
	for c := range modelChannels {
		name := fmt.Sprint(c)
		if broker.subscribed[name] != wanted[name] || s.wants(name) != wanted[name] {
			t.Fatalf("channel %s: wanted %v, subscribed %v", name, wanted[name], broker.subscribed[name])
		}
	}
	if len(s.channels) != len(wanted) || s.missed != 0 || len(missed) != 0 || gapOwed {
		t.Fatalf("something is left: %d channels, %d missed", len(s.channels), s.missed)
	}
}
