package pubsub

import (
	"maps"
	"slices"
	"sync"

	"github.com/badged/badged/internal/base/wait"
)

// redisInterests records the channels that a listener wants, and the channels that Redis has
// acknowledged on the current connection. It does no I/O.
//
// Join and Leave only record the changed channels in a batch. The goroutine that writes to Redis
// calls the method changes, which returns the channels for the commands of the batch. Redis
// answers once for each channel of a command, in the order of the commands. So Redis has
// acknowledged a batch when as many answers have arrived as the batch has channels.
type redisInterests struct {
	changed chan struct{} // contains a value while next may have channels

	mu sync.Mutex
	up bool // true between begin and end
	// wanted maps each wanted channel to the batch that joins it, or to nil if it is joined.
	wanted map[string]*redisBatch
	// missed has the wanted channels whose updates may be lost: the channel was joined when a
	// connection was lost, or a Join gave up waiting for it. When all channels of missed are
	// joined again, HandleGap must be called. gap is true as soon as one of these channels is
	// joined.
	missed map[string]struct{}
	gap    bool

	next       *redisBatch   // collects changes until write sends them
	unanswered []*redisBatch // batches that were sent and are not acknowledged, oldest first
}

// redisBatch is a batch of joins and leaves.
type redisBatch struct {
	channels []string      // may contain a channel more than once
	left     int           // outstanding answers, one for each channel
	done     chan struct{} // closed when Redis has answered, or the connection is lost
}

func newRedisBatch() *redisBatch { return &redisBatch{done: make(chan struct{})} }

func newRedisInterests() redisInterests {
	return redisInterests{
		changed: make(chan struct{}, 1), next: newRedisBatch(),
		wanted: make(map[string]*redisBatch), missed: make(map[string]struct{}),
	}
}

// want makes channels wanted, and schedules the commands that subscribe to them.
func (s *redisInterests) want(channels ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, channel := range channels {
		if _, ok := s.wanted[channel]; !ok {
			s.wanted[channel] = s.next
			s.change(channel)
		}
	}
}

// unwant makes channels unwanted, and schedules the commands that unsubscribe from them.
func (s *redisInterests) unwant(channels ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, channel := range channels {
		if _, ok := s.wanted[channel]; ok {
			delete(s.wanted, channel)
			delete(s.missed, channel)
			s.change(channel)
		}
	}
}

// change adds a channel to the next batch. Without a connection it does nothing, since begin
// will add all wanted channels to a batch.
func (s *redisInterests) change(channel string) {
	if s.up {
		s.next.channels = append(s.next.channels, channel)
		wait.Wake(s.changed)
	}
}

func (s *redisInterests) wants(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.wanted[channel]
	return ok
}

// pending returns nil if every given channel is joined or unwanted. Otherwise it returns a batch
// that joins one of the channels and that Redis has not acknowledged yet. givenUp is true if a
// Join has given up waiting: pending then adds the channels that are not joined yet to missed.
func (s *redisInterests) pending(channels []string, givenUp bool) (batch *redisBatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, channel := range channels {
		if b := s.wanted[channel]; b != nil {
			batch = b
			if givenUp {
				s.missed[channel] = struct{}{}
			}
		}
	}
	return batch
}

// begin records a new connection, on which no channel is subscribed yet.
func (s *redisInterests) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = true
	s.next.channels = slices.Collect(maps.Keys(s.wanted))
	wait.Wake(s.changed)
}

// end records that the connection, and with it all its subscriptions, is lost. On the next
// connection, the first batch joins all wanted channels.
func (s *redisInterests) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, batch := range append(s.unanswered, s.next) {
		close(batch.done)
	}
	s.up, s.next, s.unanswered = false, newRedisBatch(), nil
	for channel, batch := range s.wanted {
		if batch == nil {
			s.missed[channel] = struct{}{}
		}
		s.wanted[channel] = s.next
	}
}

// changes returns the channels to subscribe to and to unsubscribe from, and records them as
// sent. The caller must send the commands to subscribe first, in the given order.
func (s *redisInterests) changes() (subscribe, unsubscribe []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.next
	if len(batch.channels) == 0 {
		return nil, nil
	}
	for _, channel := range batch.channels {
		if _, ok := s.wanted[channel]; ok {
			subscribe = append(subscribe, channel)
		} else {
			unsubscribe = append(unsubscribe, channel)
		}
	}
	batch.left = len(batch.channels)
	s.unanswered = append(s.unanswered, batch)
	s.next = newRedisBatch()
	return subscribe, unsubscribe
}

// acknowledge handles one answer of Redis. gapIsDue is true if this answer completes a gap: all
// channels in missed have been joined again, and the caller must call HandleGap.
func (s *redisInterests) acknowledge() (gapIsDue bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unanswered) == 0 {
		return false // an answer to a command that the listener did not send
	}
	batch := s.unanswered[0]
	if batch.left--; batch.left == 0 {
		s.unanswered = slices.Delete(s.unanswered, 0, 1)
		close(batch.done)
		for _, channel := range batch.channels {
			s.join(channel, batch)
		}
	}
	gapIsDue = s.gap && len(s.missed) == 0
	s.gap = s.gap && !gapIsDue
	return gapIsDue
}

// join records that a batch has joined a channel, unless the channel was left in the meantime.
func (s *redisInterests) join(channel string, batch *redisBatch) {
	if s.wanted[channel] != batch {
		return
	}
	s.wanted[channel] = nil
	if _, ok := s.missed[channel]; ok {
		delete(s.missed, channel)
		s.gap = true
	}
}
