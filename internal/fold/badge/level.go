package badge

import (
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
)

// maxAppLevels is how many categories of a user may have a level. Beyond this number, an app
// cannot set the level of a further category; without the limit, an app could invent
// categories without end.
const maxAppLevels = 500

// setLevel sets the level of a category. It applies to all conversations of the category that
// have no level of their own; the rows of these conversations do not change.
func (u *User) setLevel(d *events.Data) (changed bool, why Reason) {
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

// setLevel sets the level until a time, or without an end if until is zero. When a level ends,
// the last level set without an end applies again.
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

// endLevel ends the level if its end is at or before until. A level whose end was meanwhile
// moved to a later time remains.
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
