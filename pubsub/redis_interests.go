package pubsub

import "sync"

// redisInterests is what a listener wants, against what Redis has been told and
// has acknowledged on the present connection. It does no I/O.
//
// Joins and leaves only say what is wanted; one writer, changes, turns that into
// commands. Commands about one channel are thus in the order of the decisions,
// and a join and a leave that cancel out cost nothing. Redis answers in the
// order of the commands, so that counting the answers tells which holds.
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
	// subscribed is what the last command about the channel asked for, and
	// unanswered how many commands Redis has not answered.
	subscribed bool
	unanswered int
	// missed is set when somebody who was joined is not any more, or gave up
	// waiting: updates pass that HandleGap has to tell of.
	missed bool
	ready  chan struct{} // closed when joined or left; nil while nobody waits
}

// joined says that Redis has acknowledged the channel.
func (i *redisInterest) joined() bool { return i.subscribed && i.unanswered == 0 }

// release lets go those who wait.
func (i *redisInterest) release() {
	if i.ready != nil {
		close(i.ready)
		i.ready = nil
	}
}

func newRedisInterests() redisInterests {
	return redisInterests{changed: make(chan struct{}, 1), channels: make(map[string]*redisInterest)}
}

// want asks for channels, and returns for each that is not joined yet what is
// closed when it is.
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

// unwant ends the interest in channels.
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

// giveUp says that nobody waits for channels any more, though they stay wanted.
// It returns false if there is nothing left to wait for.
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

// wants says whether messages of channel are of interest.
func (s *redisInterests) wants(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.channels[channel]
	return i != nil && i.wanted
}

// begin says that there is a connection, on which nothing is subscribed.
func (s *redisInterests) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = true
	for channel, i := range s.channels {
		s.enqueue(channel, i)
	}
}

// end says that the connection is lost, and with it everything said on it.
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

// changes returns the channels, at most limit together, to subscribe and to
// unsubscribe, and takes that for said. It signals if there are more.
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

// acknowledge takes Redis's answer to a command about channel.
func (s *redisInterests) acknowledge(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.channels[channel]
	if i == nil || i.unanswered == 0 {
		return // Redis speaks of what it was not asked: nothing to learn.
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

// gapIsDue says, once, that everybody who missed something is joined again.
func (s *redisInterests) gapIsDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.gap && s.missed == 0
	if due {
		s.gap = false
	}
	return due
}

// enqueue has the writer look at channel. Without a connection there is no
// writer, and begin looks at all.
func (s *redisInterests) enqueue(channel string, i *redisInterest) {
	if s.up && !i.queued {
		i.queued = true
		s.queue = append(s.queue, channel)
		signal(s.changed)
	}
}

// drop forgets a channel that neither we nor Redis has any more to say about.
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
