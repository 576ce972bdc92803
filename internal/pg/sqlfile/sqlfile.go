// Package sqlfile reads files of SQL statements, which are embedded next to the code that runs
// them. A line such as `-- name: read the baseline` names the statement that follows, or a text
// that later statements of the file include. In these statements, `{read the baseline}` stands
// for the text. Comment lines are removed.
//
// The package does not know tables. ADR 52 has the reasons.
package sqlfile

import (
	"fmt"
	"strings"
)

// File maps the names of a file's statements to their SQL.
type File map[string]string

const mark = "-- name: "

// Parse parses the text of a file. It panics if a statement has no name, is empty, or has the
// name of an earlier statement, since the file is part of the program.
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

// Of returns a statement for the tables of a partition. In the SQL, it replaces "pNN", as in
// badged.users_pNN, by "p" and the number of the partition with at least two digits.
func (f File) Of(partition int, name string) string {
	return strings.ReplaceAll(f.Get(name), "pNN", fmt.Sprintf("p%02d", partition))
}
