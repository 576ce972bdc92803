package pubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// redisSubscription receives the messages of its channels through one listener. In a cluster it
// has one listener for each partition of its addresses: a listener is connected to a single
// master, and a partition's slot may move to another master while other slots do not.
type redisSubscription struct {
	bus     *Redis
	handler Handler
	calling sync.Mutex // locked while the handler is called

	mu        sync.Mutex
	closed    bool
	listeners map[string]*redisListener // by tag
}

var _ Subscription = (*redisSubscription)(nil)

// Subscribe implements [Bus].
func (r *Redis) Subscribe(h Handler) (Subscription, error) {
	s := &redisSubscription{bus: r, handler: h, listeners: make(map[string]*redisListener)}
	if r.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if r.cluster == nil { // There is only one listener, so start it now.
		if _, err := s.listener(everyTag); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// listener returns the listener for channels with a tag (see [canaryChannel]). It starts the
// listener if it does not run yet. The caller must hold mu, except in Subscribe, where no other
// goroutine uses s yet.
func (s *redisSubscription) listener(tag string) (*redisListener, error) {
	if l := s.listeners[tag]; l != nil {
		return l, nil
	}
	l, err := s.bus.listen(tag, s.update, s.gap)
	if err == nil {
		s.listeners[tag] = l
	}
	return l, err
}

func (s *redisSubscription) update(channel, payload string) {
	u, err := decodeUpdate(channel, payload)
	if err != nil {
		s.bus.malformed(channel, err)
		return
	}
	s.calling.Lock()
	defer s.calling.Unlock()
	u.deliver(s.handler)
}

func (s *redisSubscription) gap() {
	s.bus.counters.gaps.Add(1)
	s.calling.Lock()
	defer s.calling.Unlock()
	s.handler.HandleGap()
}

// byListener groups the channels of addresses by the listener that receives them. It starts
// listeners that do not run yet.
func (s *redisSubscription) byListener(addresses []Address) (map[*redisListener][]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.bus.ctx.Err() != nil {
		return nil, ErrClosed
	}
	channels := make(map[*redisListener][]string, 1)
	for _, a := range addresses {
		tag := everyTag
		if s.bus.cluster != nil {
			tag = partitionTag(a.Partition)
		}
		l, err := s.listener(tag)
		if err != nil {
			return nil, err
		}
		channels[l] = append(channels[l], channelOf(a))
	}
	return channels, nil
}

// Join implements [Subscription].
func (s *redisSubscription) Join(ctx context.Context, addresses ...Address) error {
	byListener, err := s.byListener(addresses)
	if err != nil {
		return err
	}
	for l, channels := range byListener {
		l.want(channels...)
	}
	// Call await for every listener, even after an error: await records the channels that are
	// not joined yet, so that HandleGap is called when they are joined later.
	for l, channels := range byListener {
		err = errors.Join(err, l.await(ctx, channels))
	}
	switch {
	case errors.Is(err, ErrClosed):
		return ErrClosed
	case err != nil:
		return fmt.Errorf("pubsub: join %d addresses: %w", len(addresses), ctx.Err())
	}
	return nil
}

// Leave implements [Subscription]. It only schedules the command, and returns before the
// command is sent to Redis.
func (s *redisSubscription) Leave(_ context.Context, addresses ...Address) error {
	byListener, err := s.byListener(addresses)
	if err != nil {
		return err
	}
	for l, channels := range byListener {
		l.unwant(channels...)
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
		<-l.done
	}
	return nil
}
