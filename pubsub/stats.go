package pubsub

import "sync/atomic"

// Stats are the counters of a bus since it was made.
type Stats struct {
	// Reconnects counts connections that replaced a lost one.
	Reconnects uint64
	// Gaps counts the calls of HandleGap.
	Gaps uint64
	// CanariesMissed counts test messages of subscriptions to themselves that Redis accepted
	// and did not deliver.
	CanariesMissed uint64
	// Malformed counts messages that were dropped because they could not be decoded.
	Malformed uint64
	// Unsigned counts messages that were dropped because no key of [RedisConfig].Keys had
	// signed them.
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
