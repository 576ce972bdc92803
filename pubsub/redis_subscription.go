package pubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// redisSubscription listens to its channels with one listener, or in a cluster
// with one for each partition of its addresses: a connection serves one
// shard only, and partitions move between shards independently.
type redisSubscription struct {
	bus     *Redis
	handler Handler
	calling sync.Mutex // held while the handler is called

	mu        sync.Mutex
	closed    bool
	listeners map[string]*redisListener // by their tags
}

var _ Subscription = (*redisSubscription)(nil)

// Subscribe implements [Bus].
func (r *Redis) Subscribe(h Handler) (Subscription, error) {
	s := &redisSubscription{bus: r, handler: h, listeners: make(map[string]*redisListener)}
	if r.isClosed() {
		return nil, ErrClosed
	}
	if r.cluster == nil { // the only listener can connect at once
		if _, err := s.listener(everyTag); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// listener returns the listener for a tag, and starts it if needed.
func (s *redisSubscription) listener(tag string) (*redisListener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if l := s.listeners[tag]; l != nil {
		return l, nil
	}
	l, err := s.bus.listen(tag, s.update, s.gap)
	if err != nil {
		return nil, err
	}
	s.listeners[tag] = l
	return l, nil
}

func (s *redisSubscription) update(channel, payload string) {
	handle, err := s.decode(channel, payload)
	if err != nil {
		s.bus.malformed(channel, err)
		return
	}
	s.calling.Lock()
	defer s.calling.Unlock()
	handle()
}

// decode returns the call of the handler for a message.
func (s *redisSubscription) decode(channel, payload string) (handle func(), err error) {
	if isRoom(channel) {
		u, err := decodeUpdate[RoomUpdate](channel, payload)
		return func() { s.handler.HandleRoom(u) }, err
	}
	u, err := decodeUpdate[Update](channel, payload)
	return func() { s.handler.HandleUpdate(u) }, err
}

func (s *redisSubscription) gap() {
	s.bus.counters.gaps.Add(1)
	s.calling.Lock()
	defer s.calling.Unlock()
	s.handler.HandleGap()
}

// channelsByTag returns the channels of addresses by the tag of their listener.
func (s *redisSubscription) channelsByTag(addresses []Address) map[string][]string {
	channels := make(map[string][]string, 1)
	for _, a := range addresses {
		tag := everyTag
		if s.bus.cluster != nil {
			tag = partitionTag(a.Partition)
		}
		channels[tag] = append(channels[tag], channelOf(a))
	}
	return channels
}

// Join implements [Subscription].
func (s *redisSubscription) Join(ctx context.Context, addresses ...Address) error {
	type joining struct {
		listener *redisListener
		channels []string
		waits    []<-chan struct{}
	}
	var all []joining
	for tag, channels := range s.channelsByTag(addresses) {
		l, err := s.listener(tag) //nolint:contextcheck // a listener has a context of its own
		if err != nil {
			return err
		}
		all = append(all, joining{l, channels, l.want(channels...)})
	}
	var err error
	for _, j := range all { // all of them: each gives up by itself
		err = errors.Join(err, j.listener.await(ctx, j.channels, j.waits))
	}
	switch {
	case errors.Is(err, ErrClosed):
		return ErrClosed
	case err != nil:
		return fmt.Errorf("pubsub: join %d addresses: %w", len(addresses), ctx.Err())
	}
	return nil
}

// Leave implements [Subscription]. Redis gets the command soon after.
func (s *redisSubscription) Leave(_ context.Context, addresses ...Address) error {
	byTag := s.channelsByTag(addresses)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.bus.isClosed() {
		return ErrClosed
	}
	for tag, channels := range byTag {
		if l := s.listeners[tag]; l != nil {
			if err := l.leave(channels...); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close implements [Subscription].
func (s *redisSubscription) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	// No listener is added from here on.
	for _, l := range s.listeners {
		l.cancel()
	}
	for _, l := range s.listeners {
		s.bus.end(l)
	}
	return nil
}
