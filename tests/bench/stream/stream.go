// Package stream makes the events that every way of counting is given: the same
// ones in the same order for the same seed, and what they must come to, worked
// out without any of the product's code.
package stream

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
)

// Config says what happens.
type Config struct {
	Users         int
	Conversations int // of each user
	// Before is how many messages every conversation has had, and its user has
	// read, when the stream begins.
	Before int32
	// Reads is the share of reads, from 0 to 1; the rest are deliveries.
	Reads float64
	// Repeats is the share of events that come again, a few thousand events
	// later, as they do where a publisher is not sure that the first got
	// through.
	Repeats float64
	// Skew is how unevenly users are active, the exponent of Zipf's law; 0 is
	// evenly.
	Skew float64
	Seed uint64
}

// String says what it is.
func (c Config) String() string {
	return fmt.Sprintf("%d users with %d conversations each, %.0f/%.0f delivered/read, %.0f %% repeated, Zipf exponent %g, seed %d",
		c.Users, c.Conversations, 100*(1-c.Reads), 100*c.Reads, 100*c.Repeats, c.Skew, c.Seed)
}

// Event is one event of one user. Messages of a conversation are numbered from
// 1 without gaps, which not every way of counting could do without.
type Event struct {
	// N is the number of the event in the stream; a repeated one has that of
	// the first.
	N            int64
	User         int32
	Conversation int32 // of the user
	Read         bool  // else delivered
	// Seq is the message that is delivered, or up to which is read.
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

// padded is n with at least so many digits.
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
	// last and read are by user and conversation.
	last, read []int32
	n          int64
	// recent are some of the events of the last while, for reads to follow
	// deliveries and for repeats.
	recent []Event
}

// remembered is how many events a repeat or a read can be behind.
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

// Next fills evs with what happens next.
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
	// Who reads has been given something not long ago.
	if r := s.random.Float64(); r < s.cfg.Reads && len(s.recent) > 0 {
		of := s.recent[s.random.IntN(len(s.recent))]
		e.User, e.Conversation, e.Read = of.User, of.Conversation, true
		at := s.at(e)
		e.Seq = int64(s.last[at])
		if s.random.IntN(4) == 0 { // not all of it
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

// Totals returns what each user has not read once all that was handed out has
// been applied, in whatever order.
func (s *Stream) Totals() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	totals := make([]int64, s.cfg.Users)
	for i := range s.last {
		totals[i/s.cfg.Conversations] += int64(s.last[i] - s.read[i])
	}
	return totals
}
