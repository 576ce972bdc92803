// Package sqlfile reads files of SQL statements, which are embedded next to the code that runs
// them. A line such as `-- name: read the baseline` begins a statement or a part of statements.
// Statements below it may include the text as {read the baseline}. Comment lines are removed.
//
// The package does not know tables. ADR 52 has the reasons.
package sqlfile

import (
	"fmt"
	"strings"
)

// File has the statements of a file by their names.
type File map[string]string

const mark = "-- name: "

// Parse reads a file. It panics if a statement has no name, is empty or has the name of an
// earlier one, since the file is part of the program.
func Parse(text string) File {
	f := File{}
	head, rest, more := strings.Cut("\n"+text, "\n"+mark)
	if statement(head) != "" {
		panic("sqlfile: the first statement has no name: " + head)
	}
	for more {
		var block string
		block, rest, more = strings.Cut(rest, "\n"+mark)
		name, body, _ := strings.Cut(block, "\n")
		if _, twice := f[name]; twice || statement(body) == "" {
			panic(fmt.Sprintf("sqlfile: statement %q is empty or occurs twice", name))
		}
		body = statement(body)
		for part, sql := range f {
			body = strings.ReplaceAll(body, "{"+part+"}", sql)
		}
		f[name] = body
	}
	return f
}

// statement returns the lines that are not comments, without the semicolon that
// ends the statement.
func statement(body string) string {
	var lines []string
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			lines = append(lines, line)
		}
	}
	return strings.TrimSuffix(strings.TrimSpace(strings.Join(lines, "")), ";")
}

// Get returns the statement with a name. It panics if the name does not exist; a test of the
// architecture checks the names in the code.
func (f File) Get(name string) string {
	sql, ok := f[name]
	if !ok {
		panic(fmt.Sprintf("sqlfile: there is no statement %q", name))
	}
	return sql
}

// Of returns a statement on the tables of a partition: it replaces "pNN" in names such as
// badged.users_pNN by "p" and the partition's number, with at least two digits.
func (f File) Of(partition int, name string) string {
	return strings.ReplaceAll(f.Get(name), "pNN", fmt.Sprintf("p%02d", partition))
}
