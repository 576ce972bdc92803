package badge

import (
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
)

// maxAppLevels limits how many categories of a user can have a level. At the limit, an app
// cannot set the level of a further category; the backend still can. Without the limit, an app
// could set levels of any number of invented categories.
const maxAppLevels = 500

// setLevel sets the level of a category. The level applies to all conversations of the
// category that have no level of their own. Only the numbers of u change; the rows of these
// conversations do not.
func (u *User) setLevel(d *events.Data) (changed bool, reason Reason) {
	before, given := u.Paths.Levels[d.Category]
	switch {
	case string(d.Level) == before || !given && d.Level == events.LevelDefault:
		return false, sameCategoryLevel
	case !given && d.ByApp && len(u.Paths.Levels) >= maxAppLevels:
		return false, tooManyLevels
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
	return true, none
}

// setLevel sets the level until a time, or permanently if `until` is zero. At that time, the last
// level that was set permanently applies again.
func (c *Conversation) setLevel(level events.Level, until time.Time) Reason {
	switch {
	case until.IsZero():
		c.replaceLevel(level, 0, "")
	case c.LevelUntil == 0:
		c.replaceLevel(level, until.UnixMicro(), c.Level)
	default:
		c.replaceLevel(level, until.UnixMicro(), c.LevelAfter)
	}
	return sameLevel
}

// endLevel ends the level if it expires at or before `until`. It does nothing if the level was set
// again with a later expiry.
func (c *Conversation) endLevel(until time.Time) Reason {
	if c.LevelUntil != 0 && c.LevelUntil <= until.UnixMicro() {
		c.replaceLevel(c.LevelAfter, 0, "")
	}
	return noLevelEnds
}

func (c *Conversation) replaceLevel(level events.Level, until int64, after events.Level) {
	if c.Level != level || c.LevelUntil != until || c.LevelAfter != after {
		c.Level, c.LevelUntil, c.LevelAfter, c.Touched = level, until, after, true
	}
}
