package moving

import (
	"fmt"
	"slices"
	"strings"
)

// form is how the rows of a table follow those of the source.
type form int

const (
	// byKey: rows that change are copied again, one by one.
	byKey form = iota
	// whole: if any row changes, all rows of the partition are copied again. For tables
	// with few rows.
	whole
	// frozen: nothing changes the rows while the partition moves.
	frozen
)

// table is a table with rows of partitions.
type table struct {
	// kind is its name, without the partition.
	kind string
	// shared is set for a table that has the rows of all partitions.
	shared bool
	// suffix follows the partition in the name.
	suffix string
	form   form
	// key are the columns of its primary key, without the partition.
	key []string
	// places is what the columns transaction_id and "offset" are, if it has them.
	places place
	// refers is a condition for rows r that are in the target with what they refer to, ""
	// if they refer to nothing. pNN stands for the partition.
	refers string
}

// place is what a stored place of the log is.
type place int

const (
	// noPlace: the table has none.
	noPlace place = iota
	// ofRow: that of a row of the log, if the log has the row still.
	ofRow
	// between: one between rows.
	between
)

// tables are all tables with rows of partitions that move with them, besides the log, the
// positions of its readers, and badged.partitions. Tables come after those that they
// refer to.
func tables() []table {
	all := []table{
		{kind: "users", key: []string{"user_id"}},
		{kind: "conversations", key: []string{"user_id", "conversation_id"}},
		{kind: "rooms", key: []string{"conversation_id"}},
		{kind: "room_chunks", key: []string{"conversation_id", "bound"}},
		{kind: "room_marks", key: []string{"conversation_id", "seq", "user_id"}},
		{kind: "dedup_pages", key: []string{"run", "first"}},
		{kind: "dedup_blocks", form: whole}, // at most a megabyte
		{kind: "devices", key: []string{"user_id", "device_id"}},
		{kind: "alerts", key: []string{"user_id", "device_id", "conversation_id", "seq"}, refers: `EXISTS (SELECT FROM badged.devices_pNN AS d WHERE d.user_id = r.user_id AND d.device_id = r.device_id)`},
		{kind: "room_rounds", key: []string{"conversation_id"}},
		{kind: "room_alerts", key: []string{"conversation_id", "seq"}},
		{kind: "webhook_queue", key: []string{"webhook", "type", "subject"}, refers: `EXISTS (SELECT FROM badged.webhooks AS w WHERE w.name = r.webhook)`},
	}
	for _, t := range slices.Clone(all[:5]) {
		all = append(all, table{kind: t.kind, suffix: "_baseline", form: frozen, key: t.key})
	}
	all = append(all, table{kind: "keys", suffix: "_baseline", form: frozen, key: []string{"key"}})
	return append(all,
		table{kind: "dedup_filters", shared: true, key: []string{"run", "first"}},
		table{kind: "dedup_runs", shared: true, form: whole},
		table{kind: "dedup_generations", shared: true, form: whole, places: between},
		table{kind: "late_folds", shared: true, key: []string{"number"}, places: between},
		table{kind: "dead_letters", shared: true, form: whole, places: ofRow},
		table{kind: "settled_letters", shared: true, form: whole, places: ofRow},
		table{kind: "healed_users", shared: true, key: []string{"user_id"}},
		table{kind: "expiry_progress", shared: true, form: whole},
		table{kind: "room_partitions", shared: true, form: whole},
		table{kind: "notifier_partitions", shared: true, form: whole},
		table{kind: "tail_partitions", shared: true, form: whole},
		table{kind: "baselines", shared: true, form: whole, places: between},
		table{kind: "archived_files", shared: true, form: whole},
	)
}

// stay returns why a table with rows of partitions does not move with them, by its name
// without the partition; "events" and "events_offsets" are the log and the positions of
// its readers.
func stay() map[string]string {
	return map[string]string{
		"events":             "the rows of the log get places of the target: copyLog",
		"events_offsets":     "positions are translated: the last round",
		"partitions":         "who has the row holds the partition",
		"log_ranges":         "each database has ranges of its own transaction ids",
		"rebuilt_partitions": "a rebuild of one database",
		"shard_partitions":   "the map, which each shard has",
		"moves":              "the move itself",
		"move_changes":       "the move itself",
		"move_places":        "the move itself",
	}
}

// name returns the name of the table of a partition.
func (t table) name(partition int) string {
	if t.shared {
		return "badged." + t.kind
	}
	return fmt.Sprintf("badged.%s_p%02d%s", t.kind, partition, t.suffix)
}

// of returns the condition for the rows t of a partition.
func (t table) of(partition int) string {
	if t.shared {
		return fmt.Sprintf("t.partition_id = %d", partition)
	}
	return "true"
}

// column is a column of a table.
type column struct {
	name string
	// typ is its type as Postgres writes it.
	typ string
}

// columns are those of a table.
type columns []column

// list returns the quoted names, each with a prefix.
func (c columns) list(prefix string) string {
	var quoted []string
	for _, one := range c {
		quoted = append(quoted, prefix+quote(one.name))
	}
	return strings.Join(quoted, ", ")
}

// of returns the named columns.
func (c columns) of(names []string) columns {
	var found columns
	for _, n := range names {
		found = append(found, c[slices.IndexFunc(c, func(one column) bool { return one.name == n })])
	}
	return found
}

// without returns all but the named columns.
func (c columns) without(names ...string) columns {
	return slices.DeleteFunc(slices.Clone(c), func(one column) bool { return slices.Contains(names, one.name) })
}

// texts returns the columns as an array of text.
func (c columns) texts(prefix string) string {
	return `ARRAY[` + strings.Join(strings.Split(c.list(prefix), ", "), "::text, ") + `::text]`
}

// literals returns the values of the columns, which are given as text.
func (c columns) literals(values []string) string {
	var quoted []string
	for i, one := range c {
		quoted = append(quoted, literal(values[i])+"::"+one.typ)
	}
	return strings.Join(quoted, ", ")
}

// fromKey returns expressions of the values of the columns from an array of text.
func (c columns) fromKey(array string) string {
	var values []string
	for i, one := range c {
		values = append(values, fmt.Sprintf("(%s)[%d]::%s", array, i+1, one.typ))
	}
	return strings.Join(values, ", ")
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func literal(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
