package stream_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/badged/badged/tests/bench/stream"
)

func config() stream.Config {
	return stream.Config{Users: 1000, Conversations: 5, Reads: 0.1, Repeats: 0.01, Skew: 0.8, Seed: 7}
}

// take returns the next n events of s, drawn atOnce at a time.
func take(s *stream.Stream, n, atOnce int) []stream.Event {
	var all []stream.Event
	for chunk := make([]stream.Event, atOnce); len(all) < n; {
		s.Next(chunk)
		all = append(all, chunk...)
	}
	return all
}

func TestEqualSeedsGiveEqualStreams(t *testing.T) {
	one, other := take(stream.New(config()), 20_000, 1), take(stream.New(config()), 20_000, 500)
	if !slices.Equal(one, other) {
		t.Error("two streams of one configuration differ")
	}
	cfg := config()
	cfg.Seed++
	if slices.Equal(one, take(stream.New(cfg), 20_000, 1)) {
		t.Error("the seed makes no difference")
	}
}

func TestShares(t *testing.T) {
	const n = 100_000
	var reads, repeats int
	byUser := make([]int, config().Users)
	seen := map[int64]bool{}
	for _, e := range take(stream.New(config()), n, 100) {
		if seen[e.N] {
			repeats++
			continue
		}
		seen[e.N] = true
		byUser[e.User]++
		if e.Read {
			reads++
		}
	}
	if share := float64(reads) / float64(n-repeats); share < 0.09 || share > 0.11 {
		t.Errorf("%.3f of the events are reads", share)
	}
	if share := float64(repeats) / n; share < 0.008 || share > 0.012 {
		t.Errorf("%.4f of the events are repeated", share)
	}
	slices.Sort(byUser)
	var top int
	for _, c := range byUser[len(byUser)*9/10:] {
		top += c
	}
	if top < n*3/10 || byUser[0] == 0 {
		t.Errorf("the most active tenth of the users has %d of %d events, the least active user %d", top, n, byUser[0])
	}
}

// The totals equal the totals that sets of messages give, in any order of the events.
func TestTotals(t *testing.T) {
	s := stream.New(config())
	events := take(s, 50_000, 1000)
	slices.Reverse(events)
	type place struct{ user, conversation int32 }
	delivered, read := map[place]map[int64]bool{}, map[place]int64{}
	for _, e := range events {
		p := place{e.User, e.Conversation}
		if e.Read {
			read[p] = max(read[p], e.Seq)
			continue
		}
		if delivered[p] == nil {
			delivered[p] = map[int64]bool{}
		}
		delivered[p][e.Seq] = true
	}
	want := map[string]int64{}
	for user := range config().Users {
		want[stream.UserID(int32(user))] = 0
	}
	for p, seqs := range delivered {
		for seq := range seqs {
			if seq > read[p] {
				want[stream.UserID(p.user)]++
			}
		}
	}
	if got := s.Totals(); !maps.Equal(got, want) {
		t.Error("the totals are not those of the sets")
	}
}

func TestNames(t *testing.T) {
	e := stream.Event{N: 12, User: 34, Conversation: 5}
	if got := []string{e.ID(), e.UserID(), e.ConversationID()}; !slices.Equal(got, []string{"e-12", "user-0000034", "talk-0000034-5"}) {
		t.Errorf("the names are %q", got)
	}
	if got := stream.UserID(0); got != "user-0000000" {
		t.Errorf("the first user is %s", got)
	}
}
