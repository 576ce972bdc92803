// Package stream generates the events for every way of counting: the same events in
// the same order for the same seed. It also computes the totals that must result,
// without any of the product's code.
package stream

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
)

// Config configures a stream.
type Config struct {
	Users         int
	Conversations int // of each user
	// Before is the number of messages that every conversation has, all read,
	// when the stream begins.
	Before int32
	// Reads is the share of reads, from 0 to 1; the rest are deliveries.
	Reads float64
	// Repeats is the share of events that are repeated a few thousand events
	// later, as by a publisher that retries.
	Repeats float64
	// Skew is the exponent of Zipf's law for the activity of users; 0 is
	// uniform.
	Skew float64
	Seed uint64
}

// String describes the stream.
func (c Config) String() string {
	return fmt.Sprintf("%d users with %d conversations each, %.0f/%.0f delivered/read, %.0f %% repeated, Zipf exponent %g, seed %d",
		c.Users, c.Conversations, 100*(1-c.Reads), 100*c.Reads, 100*c.Repeats, c.Skew, c.Seed)
}

// Event is one event of one user. Messages of a conversation are numbered from 1
// without gaps, which some ways of counting need.
type Event struct {
	// N is the number of the event in the stream. A repeat has the number of the
	// original.
	N            int64
	User         int32
	Conversation int32 // of the user
	Read         bool  // else delivered
	// Seq is the delivered message, or the last read one.
	Seq int64
}

// ID names the event.
func (e Event) ID() string { return "e-" + strconv.FormatInt(e.N, 10) }

// UserID returns the id of a user.
func UserID(user int32) string { return "user-" + padded(int64(user), 7) }

// UserID returns the id of the event's user.
func (e Event) UserID() string { return UserID(e.User) }

// ConversationID returns the id of the event's conversation, which no other
// user is in.
func (e Event) ConversationID() string {
	return "talk-" + padded(int64(e.User), 7) + "-" + strconv.Itoa(int(e.Conversation))
}

// padded formats n with leading zeros.
func padded(n int64, digits int) string {
	var b [20]byte
	i := len(b)
	for ; n > 0 || i > len(b)-digits; n /= 10 {
		i--
		b[i] = byte('0' + n%10)
	}
	return string(b[i:])
}

// Stream hands out events. It is safe for concurrent use.
type Stream struct {
	cfg Config

	mu            sync.Mutex
	random        *rand.Rand
	users, chosen alias
	// last and read are indexed by user and conversation.
	last, read []int32
	n          int64
	// recent is a sample of recent events, for reads after deliveries and for
	// repeats.
	recent []Event
}

// remembered is how many events back a repeat or a read can refer to.
const remembered = 4096

// New returns a stream at its start.
func New(cfg Config) *Stream {
	s := &Stream{
		cfg:    cfg,
		random: rand.New(rand.NewPCG(cfg.Seed, 0)), //nolint:gosec // the same events every time
		users:  newAlias(cfg.Users, cfg.Skew),
		chosen: newAlias(cfg.Conversations, cfg.Skew),
		last:   make([]int32, cfg.Users*cfg.Conversations),
		read:   make([]int32, cfg.Users*cfg.Conversations),
		recent: make([]Event, 0, remembered),
	}
	for i := range s.last {
		s.last[i], s.read[i] = cfg.Before, cfg.Before
	}
	return s
}

// Next fills evs with the next events.
func (s *Stream) Next(evs []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range evs {
		evs[i] = s.next()
	}
}

func (s *Stream) next() Event {
	p := s.random.Float64()
	if p < s.cfg.Repeats && len(s.recent) > 0 {
		return s.recent[s.random.IntN(len(s.recent))]
	}
	e := Event{N: s.n}
	s.n++
	// Reads follow a recent delivery.
	if r := s.random.Float64(); r < s.cfg.Reads && len(s.recent) > 0 {
		of := s.recent[s.random.IntN(len(s.recent))]
		e.User, e.Conversation, e.Read = of.User, of.Conversation, true
		at := s.at(e)
		e.Seq = int64(s.last[at])
		if s.random.IntN(4) == 0 { // only part of it
			e.Seq -= int64(s.last[at]-s.read[at]) / 2
		}
		s.read[at] = max(s.read[at], int32(e.Seq)) //nolint:gosec // at most last
	} else {
		e.User, e.Conversation = s.users.draw(s.random), s.chosen.draw(s.random)
		at := s.at(e)
		s.last[at]++
		e.Seq = int64(s.last[at])
	}
	if len(s.recent) < remembered {
		s.recent = append(s.recent, e)
	} else {
		s.recent[s.random.IntN(remembered)] = e
	}
	return e
}

func (s *Stream) at(e Event) int { return int(e.User)*s.cfg.Conversations + int(e.Conversation) }

// Totals returns the unread total of each user after all events that were handed
// out, in any order.
func (s *Stream) Totals() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	totals := make([]int64, s.cfg.Users)
	for i := range s.last {
		totals[i/s.cfg.Conversations] += int64(s.last[i] - s.read[i])
	}
	return totals
}
