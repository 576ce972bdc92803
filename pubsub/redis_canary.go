package pubsub

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
)

// maxMisses is after how many canaries in a row that did not come a connection
// is given up.
const maxMisses = 2

// errDeaf says that Redis answers on a connection, and passes nothing on.
var errDeaf = errors.New("messages do not arrive, though Redis takes and answers them")

// canary tells whether what is published arrives: a pong only says that Redis is
// there. It goes the way of updates, over a connection of the publishers', and in
// a cluster by the master of the same slot. Each listener has its own.
type canary struct {
	channel string
	execute func(context.Context, ...redisMessage) error
	heard   atomic.Uint64 // the latest that has come

	// The rest is for who sends.

	last uint64 // numbers go on from one connection to the next
	sent uint64 // the latest that Redis has taken; 0 after one that it has not
}

func newCanary(tag string, execute func(context.Context, ...redisMessage) error) canary {
	return canary{channel: canaryChannel(tag), execute: execute}
}

// send publishes the next canary. One that Redis does not take counts for
// nothing: pings watch over a Redis that is away.
func (c *canary) send(ctx context.Context) {
	c.last++
	c.sent = 0
	if c.execute(ctx, redisMessage{c.channel, strconv.AppendUint(nil, c.last, 10)}) == nil {
		c.sent = c.last
	}
}

// missing says that the last canary was taken by Redis and has not come.
func (c *canary) missing() bool { return c.sent > c.heard.Load() }

// hear takes a canary.
func (c *canary) hear(payload string) {
	if n, err := strconv.ParseUint(payload, 10, 64); err == nil {
		c.heard.Store(n)
	}
}
