package main

const (
	levelFile  = "internal/fold/badge/level.go"
	endingFile = "internal/user/expiry/levels.go"
	expirySQL  = "internal/user/expiry/expiry.sql"
	framesFile = "gateway/protocol/frames.go"
)

// Checks of levels that end, and of the fields of commands.
var (
	levelsEnd     = check{"./internal/user/expiry", "^TestLevels", false}
	levelStories  = check{"./internal/fold/store", "^TestStories$", false}
	commandFields = check{"./gateway/protocol", "^TestCommandsHaveOnlyTheirFields$", false}
)

// levelMutants end levels at the wrong time, or let commands of apps do more than they may.
var levelMutants = []mutant{
	{"a level that was set for longer ends early", []edit{{levelFile, "c.LevelUntil != 0 && c.LevelUntil <= until.UnixMicro()", "c.LevelUntil != 0"}}, levelStories},
	{"a level that was set until a time stays after the next one has ended", []edit{{levelFile, "case c.LevelUntil == 0:", "case true:"}}, levelStories},
	{"a sweep reads all levels that end later", []edit{{expirySQL, "extract(epoch FROM statement_timestamp())", "extract(epoch FROM clock_timestamp())"}}, levelsEnd},
	{"a sweep ends one page of levels", []edit{{endingFile, "if !folds || len(due) < x.pageSize {", "if true {"}}, levelsEnd},
	{"a level that is set again until the same time does not end", []edit{{endingFile, "versions+due[0].Version", "versions+0*due[0].Version"}}, levelsEnd},
	{"a misspelt field widens a command", []edit{{framesFile, "case !slices.Contains(fields, m.name):", "case false:"}}, commandFields},
	{"a field that is null widens a command", []edit{{framesFile, "case m.value.Kind() == jsontext.KindNull:", "case false:"}}, commandFields},
	{"a field that is given twice widens a command", []edit{{framesFile, "case given[m.name]:", "case false:"}}, commandFields},
}
