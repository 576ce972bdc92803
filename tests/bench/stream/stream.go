// Package stream generates the events for every way of counting: the same events in
// the same order for the same seed. It also computes the totals that must result,
// without any of the product's code.
package stream

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"sync"
)

// Config configures a stream.
type Config struct {
	Users         int
	Conversations int // of each user
	// Reads is the share of reads, from 0 to 1; the rest are deliveries.
	Reads float64
	// Repeats is the share of events that are repeated a few thousand events
	// later, as by a publisher that retries.
	Repeats float64
	// Skew is the exponent of Zipf's law for the activity of users; 0 is
	// uniform.
	Skew float64
	// InTurn delivers to all users in turn, and then to their next conversation.
	InTurn bool
	Seed   uint64
}

func (c Config) String() string {
	if c.InTurn {
		return fmt.Sprintf("%d users with %d conversations each, in turn", c.Users, c.Conversations)
	}
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
	Conversation int32 // number of the conversation among the user's
	Read         bool  // a read; otherwise a delivery
	// Seq is the delivered message, or the last read one.
	Seq int64
}

// ID names the event.
func (e Event) ID() string { return "e-" + strconv.FormatInt(e.N, 10) }

// UserID returns the id of a user.
func UserID(user int32) string { return "user-" + padded(user) }

// UserID returns the id of the event's user.
func (e Event) UserID() string { return UserID(e.User) }

// ConversationID returns the id of the event's conversation, which no other
// user is in.
func (e Event) ConversationID() string {
	return "talk-" + padded(e.User) + "-" + strconv.Itoa(int(e.Conversation))
}

func padded(n int32) string {
	s := strconv.Itoa(int(n))
	return "0000000"[min(len(s), 7):] + s
}

// Stream hands out events. It is safe for concurrent use.
type Stream struct {
	cfg Config

	mu            sync.Mutex
	random        *rand.Rand
	users, chosen zipf
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
	return &Stream{
		cfg:    cfg,
		random: rand.New(rand.NewPCG(cfg.Seed, 0)), //nolint:gosec // the same events every time
		users:  newZipf(cfg.Users, cfg.Skew),
		chosen: newZipf(cfg.Conversations, cfg.Skew),
		last:   make([]int32, cfg.Users*cfg.Conversations),
		read:   make([]int32, cfg.Users*cfg.Conversations),
		recent: make([]Event, 0, remembered),
	}
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
		if s.random.IntN(4) == 0 { // reads only a part of the conversation
			e.Seq -= int64(s.last[at]-s.read[at]) / 2
		}
		s.read[at] = max(s.read[at], int32(e.Seq)) //nolint:gosec // at most last
	} else {
		e.User, e.Conversation = s.users.draw(s.random), s.chosen.draw(s.random)
		if s.cfg.InTurn {
			users, conversations := int64(s.cfg.Users), int64(s.cfg.Conversations)
			e.User, e.Conversation = int32(e.N%users), int32(e.N/users%conversations) //nolint:gosec // few millions
		}
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
func (s *Stream) Totals() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	totals := make(map[string]int64, s.cfg.Users)
	for i := range s.last {
		totals[UserID(int32(i/s.cfg.Conversations))] += int64(s.last[i] - s.read[i]) //nolint:gosec // few millions
	}
	return totals
}

// zipf draws numbers from 0 to n-1, number k with a weight of 1/(k+1)^s.
type zipf struct{ cumulated []float64 }

func newZipf(n int, s float64) zipf {
	z := zipf{make([]float64, n)}
	var sum float64
	for k := range z.cumulated {
		sum += math.Pow(float64(k+1), -s)
		z.cumulated[k] = sum
	}
	return z
}

func (z zipf) draw(random *rand.Rand) int32 {
	return int32(sort.SearchFloat64s(z.cumulated, random.Float64()*z.cumulated[len(z.cumulated)-1])) //nolint:gosec // few millions
}
