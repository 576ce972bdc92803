package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Column is a column of a row that is held in memory. All statements that name the columns of
// a table are generated from the Columns of its row type.
type Column struct {
	Name string
	// target points to the value, which is a string, int64, bool or seqSet.
	target any
	// kind is the SQL type of a column whose value is passed as text; "" for other columns.
	kind string
	// usual is the value that most rows have, nil if there is none. If null is true, the table
	// stores NULL for this value.
	usual any
	null  bool
	// derived is true if the value follows from other columns. Batches write derived columns
	// and do not read them.
	derived bool

	// The fields below have the values of several rows; only the slice for the column's type
	// is used. Usual values at the end of the slice are omitted: unnest pads the array with
	// NULL.
	texts   []string
	numbers []int64
	bools   []bool
}

// Text returns the value in the form in which Postgres prints it, "" for NULL.
func (c *Column) Text() string {
	switch at := c.target.(type) {
	case *string:
		return *at
	case *seqSet:
		return at.hex()
	case *int64:
		if c.null && c.usual == any(*at) {
			return ""
		}
		return strconv.FormatInt(*at, 10)
	}
	return strconv.FormatBool(*c.target.(*bool)) //nolint:forcetypeassert // there are no other types
}

// Show converts a result of Text to readable text.
func (c *Column) Show(text string) string {
	if _, is := c.target.(*seqSet); is {
		return showSet(text)
	}
	return text
}

// param returns the SQL type of the parameter for the column.
func (c *Column) param() string {
	switch c.target.(type) {
	case *string:
		return "text"
	case *seqSet:
		return "bytea"
	case *int64:
		return "bigint"
	}
	return "boolean"
}

// literal returns the usual value as an SQL literal.
func (c *Column) literal() string {
	if text, ok := c.usual.(string); ok {
		return "'" + text + "'"
	}
	return fmt.Sprint(c.usual)
}

// read returns the SQL expression that reads the column.
func (c *Column) read() string {
	sql := c.Name
	if c.kind != "" {
		sql += "::text"
	}
	if c.null {
		sql = "coalesce(" + sql + ", " + c.literal() + ")"
	}
	return sql
}

// stored returns the SQL expression for the value to store. It computes the value from the
// column's parameter in r.
func (c *Column) stored() string {
	sql, kind := "r."+c.Name, ""
	if c.kind != "" {
		kind = "::" + c.kind
	}
	switch {
	case c.null:
		return "nullif(" + sql + ", " + c.literal() + ")" + kind
	case c.usual != nil:
		return "coalesce(" + sql + kind + ", " + c.literal() + ")"
	}
	return sql + kind
}

// TableSQL has the statements on the rows of a table.
type TableSQL struct {
	name string
	// Read reads rows. The caller appends a condition or a join.
	Read string
	// ReadUsers reads the rows of the users in the array $1.
	ReadUsers string
	// Copy is a COPY statement that writes the columns of rows of the partition. The input has
	// "" for NULL.
	Copy string

	insert, update rowsSQL
}

// rowsSQL has two forms of a statement that writes rows. The parameters of `many` are arrays,
// one for each column. The parameters of single are the values of a single row: most batches of a
// quiet partition write one row, and this form takes a third of the time.
type rowsSQL struct{ many, single string }

// tableSQL returns the statements on a table of a partition. The first `key` columns and the
// partition are the primary key.
func tableSQL(table string, partition int, columns []Column, key int) TableSQL {
	var names, read, stored, changes, same, arrays, values []string
	for i := range columns {
		c := &columns[i]
		names, stored = append(names, c.Name), append(stored, c.stored())
		if !c.derived {
			read = append(read, c.read())
		}
		if i < key {
			same = append(same, fmt.Sprintf("t.%[1]s = r.%[1]s", c.Name))
		} else {
			changes = append(changes, c.Name+" = "+c.stored())
		}
		arrays = append(arrays, fmt.Sprintf("unnest($%d::%s[]) AS %s", i+1, c.param(), c.Name))
		values = append(values, fmt.Sprintf("$%d::%s AS %s", i+1, c.param(), c.Name))
	}
	list := func(expressions []string) string { return strings.Join(expressions, ", ") }
	fill := strings.NewReplacer(
		"TABLE", table, "PARTITION", strconv.Itoa(partition), "NAMES", list(names), "COLUMNS", list(read),
		"STORED", list(stored), "CHANGES", list(changes), "SAME_KEY", strings.Join(same, " AND "),
	).Replace
	rows := func(many, single string) rowsSQL {
		return rowsSQL{
			many:   strings.ReplaceAll(fill(many), "PARAMETERS", list(arrays)),
			single: strings.ReplaceAll(fill(single), "PARAMETERS", list(values)),
		}
	}
	all := fill(statements.Get("read rows"))
	return TableSQL{
		name: table, Read: all, ReadUsers: all + "\n" + statements.Get("of users"), Copy: fill(statements.Get("load rows")),
		insert: rows(statements.Get("insert rows"), statements.Get("insert rows")),
		update: rows(statements.Get("update rows"), statements.Get("update a row")),
	}
}

// targets returns the scan targets of the columns that are not derived.
func targets(columns []Column) []any {
	var to []any
	for i := range columns {
		if c := &columns[i]; !c.derived {
			to = append(to, c.target)
		}
	}
	return to
}

// rows collects rows of a table as parameters of one statement.
type rows struct {
	columns []Column
	n       int
	// expected is the capacity to allocate, in rows.
	expected int
}

// add adds the present values of row. Pass the same row in every call, with new values: the
// columns point into it.
func (r *rows) add(row interface{ Columns() []Column }) {
	if r.columns == nil {
		r.columns = row.Columns()
	}
	for i := range r.columns {
		c := &r.columns[i]
		switch at := c.target.(type) {
		case *string:
			c.texts = add(c.texts, *at, c.usual, r)
		case *seqSet:
			c.texts = add(c.texts, string(*at), c.usual, r)
		case *int64:
			c.numbers = add(c.numbers, *at, c.usual, r)
		case *bool:
			c.bools = add(c.bools, *at, c.usual, r)
		}
	}
	r.n++
}

// add adds v, the value of the next row, to the values of a column. It omits usual values at the
// end of the slice, and inserts them when an unusual value follows.
func add[V comparable](values []V, v V, usual any, r *rows) []V {
	u, rare := usual.(V)
	if rare && v == u {
		return values
	}
	if values == nil && !rare {
		values = make([]V, 0, r.expected)
	}
	for rare && len(values) < r.n {
		values = append(values, u)
	}
	return append(values, v)
}

// queue adds to batch the statement that writes the collected rows.
func (r *rows) queue(batch *pgx.Batch, sql rowsSQL) {
	if r.n == 0 {
		return
	}
	arguments := make([]any, len(r.columns))
	for i := range r.columns {
		c := &r.columns[i]
		switch c.target.(type) {
		case *string:
			arguments[i] = argument(c.texts, r)
		case *seqSet:
			arguments[i] = argument(bytesOf(c.texts), r)
		case *int64:
			arguments[i] = argument(c.numbers, r)
		case *bool:
			arguments[i] = argument(c.bools, r)
		}
	}
	statement := sql.many
	if r.n == 1 {
		statement = sql.single
	}
	batch.Queue(statement, arguments...)
}

// argument returns the parameter for a column. For several rows, it is an array. For one row,
// it is the value of this row, or nil if that is the usual value.
func argument[V any](values []V, r *rows) any {
	switch {
	case r.n > 1:
		return values
	case len(values) == 0:
		return nil
	}
	return values[0]
}

// bytesOf converts the texts to bytea values.
func bytesOf(texts []string) (all [][]byte) {
	for _, text := range texts {
		all = append(all, []byte(text))
	}
	return all
}
