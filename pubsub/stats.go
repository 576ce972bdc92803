package pubsub

import "sync/atomic"

// Stats counts what a bus has seen since it was made.
type Stats struct {
	// Reconnects counts the connections that were built in place of a lost one.
	Reconnects uint64
	// Gaps counts the calls of HandleGap.
	Gaps uint64
	// CanariesMissed counts the messages with which subscriptions check their
	// connections, and that did not come.
	CanariesMissed uint64
	// Malformed counts the messages that were not understood and dropped.
	Malformed uint64
	// PublishErrors counts the calls of Publish and Wake that failed.
	PublishErrors uint64
}

// counters are the living Stats of a bus.
type counters struct {
	reconnects, gaps, canariesMissed, malformed, publishErrors atomic.Uint64
}

func (c *counters) stats() Stats {
	return Stats{
		Reconnects:     c.reconnects.Load(),
		Gaps:           c.gaps.Load(),
		CanariesMissed: c.canariesMissed.Load(),
		Malformed:      c.malformed.Load(),
		PublishErrors:  c.publishErrors.Load(),
	}
}
