package pubsub

import "sync/atomic"

// Stats are the counters of a bus since the bus was created.
type Stats struct {
	// Reconnects counts the connections that were opened after an earlier connection was lost.
	Reconnects uint64
	// Gaps counts the calls of HandleGap.
	Gaps uint64
	// CanariesMissed counts the canaries that Redis accepted but did not deliver. A canary is a
	// test message that a subscription publishes to itself.
	CanariesMissed uint64
	// Malformed counts messages that were dropped because they could not be decoded.
	Malformed uint64
	// Unsigned counts messages that were dropped because they have no signature by any of
	// [RedisConfig].Keys.
	Unsigned uint64
	// PublishErrors counts the calls of Publish and Wake that failed.
	PublishErrors uint64
}

// counters hold the Stats of a bus.
type counters struct {
	reconnects, gaps, canariesMissed, malformed, unsigned, publishErrors atomic.Uint64
}

func (c *counters) stats() Stats {
	return Stats{
		Reconnects:     c.reconnects.Load(),
		Gaps:           c.gaps.Load(),
		CanariesMissed: c.canariesMissed.Load(),
		Malformed:      c.malformed.Load(),
		Unsigned:       c.unsigned.Load(),
		PublishErrors:  c.publishErrors.Load(),
	}
}
