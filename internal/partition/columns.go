package partition

import (
	"fmt"
	"slices"
	"strings"
)

// Column is a column of a table.
type Column struct {
	Name string
	// Type is the type of the column, as Postgres writes it.
	Type string
}

// Columns are columns of a table.
type Columns []Column

// List returns the quoted names, separated by commas, each after a prefix such as "t.".
func (c Columns) List(prefix string) string {
	var quoted []string
	for _, column := range c {
		quoted = append(quoted, prefix+Quote(column.Name))
	}
	return strings.Join(quoted, ", ")
}

// Of returns the columns with these names, which must exist.
func (c Columns) Of(names []string) Columns {
	var found Columns
	for _, n := range names {
		found = append(found, c[slices.IndexFunc(c, func(column Column) bool { return column.Name == n })])
	}
	return found
}

// Without returns the columns except the named ones.
func (c Columns) Without(names ...string) Columns {
	return slices.DeleteFunc(slices.Clone(c), func(column Column) bool { return slices.Contains(names, column.Name) })
}

// Texts returns an SQL array of the columns' values, each cast to text. The prefix, such as "t.",
// precedes the name of each column.
func (c Columns) Texts(prefix string) string {
	return `ARRAY[` + strings.Join(strings.Split(c.List(prefix), ", "), "::text, ") + `::text]`
}

// Literals returns SQL literals for values of the columns, separated by commas. The values are
// given as text; each literal is cast to the type of its column.
func (c Columns) Literals(values []string) string {
	var quoted []string
	for i, column := range c {
		quoted = append(quoted, Literal(values[i])+"::"+column.Type)
	}
	return strings.Join(quoted, ", ")
}

// FromKey is the reverse of Texts: it returns SQL expressions, separated by commas, that read the
// columns' values from an SQL array of text.
func (c Columns) FromKey(array string) string {
	var values []string
	for i, column := range c {
		values = append(values, fmt.Sprintf("(%s)[%d]::%s", array, i+1, column.Type))
	}
	return strings.Join(values, ", ")
}

// Quote quotes a name.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Literal quotes a text.
func Literal(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }

// Upsert returns an ON CONFLICT clause for an INSERT into the table: if a row with the same key
// exists, the INSERT overwrites its columns, except the columns named in `but`.
func (t Table) Upsert(all Columns, but ...string) string {
	unique := all.Of(t.Key)
	if t.Shared {
		unique = append(all.Of([]string{"partition_id"}), unique...)
	}
	var sets []string
	for _, c := range all.Without(slices.Concat([]string{"partition_id"}, t.Key, but)...) {
		sets = append(sets, Quote(c.Name)+" = excluded."+Quote(c.Name))
	}
	if len(sets) == 0 {
		return ` ON CONFLICT (` + unique.List("") + `) DO NOTHING`
	}
	return ` ON CONFLICT (` + unique.List("") + `) DO UPDATE SET ` + strings.Join(sets, ", ")
}
