package store

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/pgwire"
)

// Column is a column of a row in memory. Every statement that names the columns
// of a table is made from those of its row.
type Column struct {
	Name string
	// at points to the value: a string, int64, bool or seqSet.
	at any
	// kind is the type of the column if text is converted to it and back.
	kind string
	// usual is the value of most rows, nil if there is none. If null is set the
	// table has null instead.
	usual any
	null  bool
	// derived is set if the value follows from other columns. It is not read.
	derived bool

	// The values of many rows. A usual value is left out unless another follows.
	texts   []string
	numbers []int64
	bools   []bool
}

// Text returns the value as Postgres prints it, "" for null.
func (c *Column) Text() string {
	switch at := c.at.(type) {
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
	return strconv.FormatBool(*c.at.(*bool)) //nolint:forcetypeassert // there are no other types
}

// Show returns what Text does for people.
func (c *Column) Show(text string) string {
	if _, is := c.at.(*seqSet); is {
		return showSet(text)
	}
	return text
}

// param returns the type of a parameter.
func (c *Column) param() string {
	switch c.at.(type) {
	case *string:
		return "text"
	case *seqSet:
		return "bytea"
	case *int64:
		return "bigint"
	}
	return "boolean"
}

// literal returns the usual value in SQL.
func (c *Column) literal() string {
	if text, ok := c.usual.(string); ok {
		return "'" + text + "'"
	}
	return fmt.Sprint(c.usual)
}

// read returns the expression that reads the column.
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

// stored returns the expression of the column for a parameter in r.
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
	// Read reads rows. A condition or a join follows.
	Read string
	// ReadUsers reads the rows of the users $1.
	ReadUsers string
	// Copy loads rows: the partition and the columns, with "" for null.
	Copy string

	insert, update rowsSQL
}

// rowsSQL writes rows that are arrays of columns. A statement for a single row,
// as most batches of a quiet partition have, takes its values instead: Postgres
// then needs a third of the time.
type rowsSQL struct{ many, one string }

// tableSQL returns the statements on a table of a partition. The first columns,
// that many, are its key.
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
	rows := func(many, one string) rowsSQL {
		return rowsSQL{
			many: strings.ReplaceAll(fill(many), "PARAMETERS", list(arrays)),
			one:  strings.ReplaceAll(fill(one), "PARAMETERS", list(values)),
		}
	}
	all := fill(statements.Get("read rows"))
	return TableSQL{
		name: table, Read: all, ReadUsers: all + "\n" + statements.Get("of users"), Copy: fill(statements.Get("load rows")),
		insert: rows(statements.Get("insert rows"), statements.Get("insert rows")),
		update: rows(statements.Get("update rows"), statements.Get("update a row")),
	}
}

// targets returns where the columns that are read are scanned to.
func targets(columns []Column) []any {
	var to []any
	for i := range columns {
		if c := &columns[i]; !c.derived {
			to = append(to, c.at)
		}
	}
	return to
}

// rows are rows of a table on their way to a statement.
type rows struct {
	columns []Column
	n       int
	// expected is how many there will be.
	expected int
}

// add adds the row in memory, which is always the same.
func (r *rows) add(row interface{ Columns() []Column }) {
	if r.columns == nil {
		r.columns = row.Columns()
	}
	for i := range r.columns {
		c := &r.columns[i]
		switch at := c.at.(type) {
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

// add adds a value of the next row.
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

// arraysBytes bounds the bytes that the arrays of a statement take without
// their elements.
const arraysBytes = 512

// queue adds a statement that writes the rows to batch, and returns roughly how
// many bytes they take on the wire.
func (r *rows) queue(batch *pgx.Batch, sql rowsSQL) int {
	if r.n == 0 {
		return 0
	}
	arguments, bytes := make([]any, len(r.columns)), arraysBytes
	for i := range r.columns {
		c := &r.columns[i]
		switch c.at.(type) {
		case *string:
			arguments[i] = argument(c.texts, r)
			bytes += pgwire.ArrayBytes(c.texts)
		case *seqSet:
			arguments[i] = bytesArgument(c.texts, r)
			bytes += pgwire.ArrayBytes(c.texts)
		case *int64:
			arguments[i] = argument(c.numbers, r)
			bytes += (4 + 8) * len(c.numbers)
		case *bool:
			arguments[i] = argument(c.bools, r)
			bytes += (4 + 1) * len(c.bools)
		}
	}
	if r.n == 1 {
		batch.Queue(sql.one, arguments...)
		return bytes
	}
	arguments[0] = pgwire.Leading{Array: arguments[0], Bytes: bytes}
	batch.Queue(sql.many, arguments...)
	return bytes
}

// argument returns the array of values, or the only one, nil for the usual one.
func argument[V any](values []V, r *rows) any {
	switch {
	case r.n > 1:
		return values
	case len(values) == 0:
		return nil
	}
	return values[0]
}

// bytesArgument is argument for bytea. No values are null also for many rows: for an
// array that is nil, pgx calls Value, which takes far longer.
func bytesArgument(values []string, r *rows) any {
	switch {
	case len(values) == 0:
		return nil
	case r.n > 1:
		return pgwire.Bytes(values)
	}
	return []byte(values[0])
}
