package pubsub

import "sync"

// redisInterests tracks which channels a listener wants, and what Redis was sent
// and has acknowledged on the current connection. It does no I/O.
//
// Joins and leaves only record what is wanted; one writer, changes, turns that
// into commands. Commands about one channel thus keep the order of the calls, and
// a join and a leave that cancel out cost nothing. Redis answers in the order of
// the commands, so counting answers shows which command each belongs to.
type redisInterests struct {
	changed chan struct{} // holds a token while queue may hold channels

	mu       sync.Mutex
	channels map[string]*redisInterest
	queue    []string // channels for changes to look at
	up       bool     // between begin and end
	// missed counts the channels with missed set. When the last of them is
	// joined, gap is due.
	missed int
	gap    bool
}

// redisInterest is the state of one channel.
type redisInterest struct {
	wanted bool
	queued bool // in the queue
	// subscribed is set if the last command about the channel subscribed;
	// unanswered counts the commands that Redis has not answered.
	subscribed bool
	unanswered int
	// missed is set when a joined channel was lost, or a Join gave up waiting:
	// updates may pass that HandleGap must report.
	missed bool
	ready  chan struct{} // closed when joined or left; nil while no call waits
}

// joined reports whether Redis has acknowledged the channel.
func (i *redisInterest) joined() bool { return i.subscribed && i.unanswered == 0 }

// release wakes the calls that wait.
func (i *redisInterest) release() {
	if i.ready != nil {
		close(i.ready)
		i.ready = nil
	}
}

func newRedisInterests() redisInterests {
	return redisInterests{changed: make(chan struct{}, 1), channels: make(map[string]*redisInterest)}
}

// want subscribes to channels. For each that is not joined yet it returns a
// channel that is closed when it is.
func (s *redisInterests) want(channels ...string) []<-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	var waits []<-chan struct{}
	for _, channel := range channels {
		i := s.channels[channel]
		if i == nil {
			i = new(redisInterest)
			s.channels[channel] = i
		}
		i.wanted = true
		if i.joined() {
			continue
		}
		if i.ready == nil {
			i.ready = make(chan struct{})
		}
		waits = append(waits, i.ready)
		s.enqueue(channel, i)
	}
	return waits
}

// unwant unsubscribes from channels.
func (s *redisInterests) unwant(channels ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, channel := range channels {
		i := s.channels[channel]
		if i == nil {
			continue
		}
		i.wanted = false
		i.release()
		s.forgive(i)
		if s.up {
			s.enqueue(channel, i)
		} else {
			delete(s.channels, channel)
		}
	}
}

// giveUp records that a Join no longer waits for channels, which stay wanted. It
// returns false if all are joined or left.
func (s *redisInterests) giveUp(channels ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	gaveUp := false
	for _, channel := range channels {
		if i := s.channels[channel]; i != nil && i.wanted && !i.joined() {
			s.miss(i)
			gaveUp = true
		}
	}
	return gaveUp
}

// wants reports whether messages of channel are wanted.
func (s *redisInterests) wants(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.channels[channel]
	return i != nil && i.wanted
}

// begin records a new connection, on which nothing is subscribed.
func (s *redisInterests) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = true
	for channel, i := range s.channels {
		s.enqueue(channel, i)
	}
}

// end records that the connection is lost, with all its subscriptions.
func (s *redisInterests) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = false
	s.queue = nil
	for channel, i := range s.channels {
		if !i.wanted {
			delete(s.channels, channel)
			continue
		}
		if i.joined() {
			s.miss(i)
		}
		i.subscribed, i.unanswered, i.queued = false, 0, false
	}
}

// changes returns the channels to subscribe and to unsubscribe, at most limit
// together, and records them as sent. It signals if there are more.
func (s *redisInterests) changes(limit int) (subscribe, unsubscribe []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := 0
	for _, channel := range s.queue {
		if len(subscribe)+len(unsubscribe) == limit {
			break
		}
		taken++
		i := s.channels[channel]
		i.queued = false
		switch {
		case i.wanted && !i.subscribed:
			i.subscribed = true
			i.unanswered++
			subscribe = append(subscribe, channel)
		case !i.wanted && i.subscribed:
			i.subscribed = false
			i.unanswered++
			unsubscribe = append(unsubscribe, channel)
		default:
			s.drop(channel, i)
		}
	}
	s.queue = s.queue[taken:]
	if len(s.queue) > 0 {
		signal(s.changed)
	} else {
		s.queue = nil // A burst may have made it large.
	}
	return subscribe, unsubscribe
}

// acknowledge handles an answer of Redis about channel.
func (s *redisInterests) acknowledge(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.channels[channel]
	if i == nil || i.unanswered == 0 {
		return // an answer to no command of ours
	}
	i.unanswered--
	if !i.wanted || !i.joined() {
		s.drop(channel, i)
		return
	}
	i.release()
	if i.missed {
		s.gap = true
		s.forgive(i)
	}
}

// gapIsDue reports, once, that all channels with missed updates are joined again.
func (s *redisInterests) gapIsDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.gap && s.missed == 0
	if due {
		s.gap = false
	}
	return due
}

// enqueue makes the writer look at channel. Without a connection there is no
// writer; begin then looks at all channels.
func (s *redisInterests) enqueue(channel string, i *redisInterest) {
	if s.up && !i.queued {
		i.queued = true
		s.queue = append(s.queue, channel)
		signal(s.changed)
	}
}

// drop forgets a channel that is neither wanted nor subscribed.
func (s *redisInterests) drop(channel string, i *redisInterest) {
	if !i.wanted && !i.subscribed && i.unanswered == 0 && !i.queued {
		delete(s.channels, channel)
	}
}

func (s *redisInterests) miss(i *redisInterest) {
	if !i.missed {
		i.missed = true
		s.missed++
	}
}

func (s *redisInterests) forgive(i *redisInterest) {
	if i.missed {
		i.missed = false
		s.missed--
	}
}
