package main

const (
	pathsFile    = "internal/fold/badge/paths.go"
	categoryFile = "internal/base/category/category.go"
	badgeLevels  = "internal/fold/badge/level.go"
)

// pathMutants break categories that have several parts.
var pathMutants = []mutant{
	{"a path covers what begins with its text", []edit{{categoryFile, "(len(category) == len(path) || category[len(path)] == '/')", "true"}}, pure},
	{"a path covers itself alone", []edit{{categoryFile, "(len(category) == len(path) || category[len(path)] == '/')", "len(category) == len(path)"}}, pure},
	{"a path lacks what is below", []edit{{pathsFile, "for path := path; path != \"\"; path = category.Above(path) {\n		s.change(", "for path := path; path != \"\"; path = \"\" {\n		s.change("}}, pure},
	{"messages are counted as conversations", []edit{{numbersFile, "return Numbers{c.Full, c.Mentions, c.Conversations, c.Unseen, Muted{}, c.Marked}", "return Numbers{c.Full, c.Mentions, c.Full, c.Unseen, Muted{}, c.Marked}"}}, pure},
	{"mentions are kept out at the level mentions", []edit{{numbersFile, "Muted{c.Full - c.Mentions, c.Beyond}", "Muted{c.Full, c.Beyond}"}}, pure},
	{"a mark unsees", []edit{{"internal/fold/badge/conversation.go", "return c.Unread.Len(), c.Mentions.Len()\n", "return c.Count(), c.Mentions.Len()\n"}}, pure},
	{"an app sees what was not delivered", []edit{{foldFile, "c.see(min(d.UpToSeq, state.lastSeq(c)))", "c.see(d.UpToSeq)"}}, pure},
	{"the shortest path that has a level decides", []edit{{numbersFile, "		if level, ok := l[path]; ok {\n			return level, path\n		}\n", "		if level, ok := l[path]; ok {\n			own, category = level, path\n		}\n"}, {numbersFile, "	return LevelAll, \"\"\n", "	if own != LevelDefault {\n		return own, category\n	}\n	return LevelAll, \"\"\n"}}, pure},
	{"a level of a path moves no sums", []edit{{badgeLevels, "	sum(func(n category.Numbers) category.Numbers { return n })\n", "	sum(category.Numbers{}.Minus)\n"}}, pure},
	{"leaving a path leaves the rooms", []edit{{memberFile, "		case r != nil:\n			u.endMembership(c, r)", "		case r != nil && false:\n			u.endMembership(c, r)"}}, rooms},
	{"many paths stay in the row of the user", []edit{{pathsFile, "case s.rows == nil && s.live > MaxInline:", "case s.rows == nil && s.live > 1000*MaxInline:"}}, check{"./internal/fold/store", "^TestManyPaths$", false}},
	{"a member's levels of paths count for no room", []edit{{accountFile, "	a.Rest.Levels, a.Badge.Levels = rest.Levels, rest.Levels\n", "	a.Rest.Levels = rest.Levels\n"}}, members},
}
