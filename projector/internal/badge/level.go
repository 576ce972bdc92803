package badge

import (
	"time"

	"github.com/badged/badged/events"
)

// setLevel sets the level, until a time or, if that is zero, for as long as no other is
// set. A level that ends is followed by the last one that was set without an end.
func (c *Conversation) setLevel(level events.Level, until time.Time) {
	switch {
	case until.IsZero():
		c.replaceLevel(level, 0, "")
	case c.LevelUntil == 0:
		c.replaceLevel(level, until.UnixMicro(), c.Level)
	default:
		c.replaceLevel(level, until.UnixMicro(), c.LevelAfter)
	}
}

// endLevel ends a level whose time has come by until. One that was set for longer since
// stays.
func (c *Conversation) endLevel(until time.Time) {
	if c.LevelUntil != 0 && c.LevelUntil <= until.UnixMicro() {
		c.replaceLevel(c.LevelAfter, 0, "")
	}
}

func (c *Conversation) replaceLevel(level events.Level, until int64, after events.Level) {
	if c.Level != level || c.LevelUntil != until || c.LevelAfter != after {
		c.Level, c.LevelUntil, c.LevelAfter, c.Touched = level, until, after, true
	}
}
