package pubsub

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
)

// maxMisses is how many canaries in a row may be lost before a connection is
// replaced.
const maxMisses = 2

// errDeaf reports that Redis answers on a connection but delivers no messages.
var errDeaf = errors.New("messages do not arrive, though Redis accepts them and answers pings")

// canary checks that published messages arrive; a pong only shows that Redis
// is up. It travels like an update: from a publishing connection and, in a
// cluster, through the master of the same slot. Each listener has its own.
type canary struct {
	channel string
	execute func(context.Context, ...redisMessage) error
	heard   atomic.Uint64 // the latest that arrived

	// Only the sender uses the rest.

	last uint64 // numbering continues across connections
	sent uint64 // the latest that Redis accepted; 0 after one that it did not
}

func newCanary(tag string, execute func(context.Context, ...redisMessage) error) canary {
	return canary{channel: canaryChannel(tag), execute: execute}
}

// send publishes the next canary. One that Redis does not accept is not counted:
// pings detect a Redis that is down.
func (c *canary) send(ctx context.Context) {
	c.last++
	c.sent = 0
	if c.execute(ctx, redisMessage{c.channel, strconv.AppendUint(nil, c.last, 10)}) == nil {
		c.sent = c.last
	}
}

// missing reports that Redis accepted the last canary but has not delivered it.
func (c *canary) missing() bool { return c.sent > c.heard.Load() }

// hear handles a canary that has arrived.
func (c *canary) hear(payload string) {
	if n, err := strconv.ParseUint(payload, 10, 64); err == nil {
		c.heard.Store(n)
	}
}
