package badge

import (
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/category"
)

// maxAppLevels is the most levels of categories that apps set: an app can invent categories
// without end.
const maxAppLevels = 500

// setLevel sets the level of a category, which conversations without one of their own
// have. Their rows stay as they are.
func (u *User) setLevel(d *events.Data) bool {
	before, given := u.Paths.Levels[d.Category]
	if string(d.Level) == before || !given && (d.Level == events.LevelDefault || d.ByApp && len(u.Paths.Levels) >= maxAppLevels) {
		return false
	}
	var views []View
	for _, c := range u.Conversations {
		if !c.Member() && c.Level == events.LevelDefault && category.Covers(d.Category, c.Category) {
			views = append(views, c.View())
		}
	}
	sum := func(sign func(category.Numbers) category.Numbers) {
		for i := range views {
			if n := views[i].Adds(u.Paths.Levels); n != (category.Numbers{}) {
				u.Add(sign(n))
				u.Paths.add(views[i].Category, sign(n))
			}
		}
	}
	sum(category.Numbers{}.Minus)
	u.Paths.set(d.Category, string(d.Level))
	sum(func(n category.Numbers) category.Numbers { return n })
	u.Version++
	return true
}

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
