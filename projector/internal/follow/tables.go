// Package follow keeps a copy of a partition's tables up to date while the partition
// serves, until it ends: what moving a partition to another shard and splitting it have in
// common. It names the tables and their keys, sets up the triggers that note which rows
// change, and closes the gates of publishers and writers.
//
// It does not know where the copy is: on another shard or in the same database. ADR 83 has
// the reasons.
package follow

import (
	"fmt"
	"slices"
	"strings"
)

// Form is how the rows of a table follow those of the source.
type Form int

const (
	// ByKey: rows that change are copied again, one by one.
	ByKey Form = iota
	// Whole: if any row changes, all rows of the partition are copied again. For tables
	// with few rows.
	Whole
	// Frozen: nothing changes the rows while the partition moves.
	Frozen
)

// Table is a table with rows of partitions.
type Table struct {
	// Kind is its name, without the partition.
	Kind string
	// Shared is set for a table that has the rows of all partitions.
	Shared bool
	// Suffix follows the partition in the name.
	Suffix string
	Form   Form
	// Key are the columns of its primary key, without the partition.
	Key []string
	// Places is what the columns transaction_id and "offset" are, if it has them.
	Places Place
	// Refers is a condition for rows r that are in the target with what they refer to, ""
	// if they refer to nothing. pNN stands for the partition.
	Refers string
}

// Place is what a stored place of the log is.
type Place int

const (
	// NoPlace: the table has none.
	NoPlace Place = iota
	// OfRow: that of a row of the log, if the log has the row still.
	OfRow
	// Between: one between rows.
	Between
)

// Tables returns all tables with rows of partitions that move with them, besides the log, the
// positions of its readers, and badged.partitions. Tables come after those that they
// refer to.
func Tables() []Table {
	all := []Table{
		{Kind: "users", Key: []string{"user_id"}},
		{Kind: "conversations", Key: []string{"user_id", "conversation_id"}},
		{Kind: "paths", Key: []string{"user_id", "category"}},
		{Kind: "rooms", Key: []string{"conversation_id"}},
		{Kind: "room_chunks", Key: []string{"conversation_id", "bound"}},
		{Kind: "room_marks", Key: []string{"conversation_id", "seq", "user_id"}},
		{Kind: "dedup_pages", Key: []string{"run", "first"}},
		{Kind: "dedup_blocks", Form: Whole}, // at most a megabyte
		{Kind: "devices", Key: []string{"user_id", "device_id"}},
		{Kind: "alerts", Key: []string{"user_id", "device_id", "conversation_id", "seq"}, Refers: `EXISTS (SELECT FROM badged.devices_pNN AS d WHERE d.user_id = r.user_id AND d.device_id = r.device_id)`},
		{Kind: "room_rounds", Key: []string{"conversation_id"}},
		{Kind: "room_alerts", Key: []string{"conversation_id", "seq"}},
		{Kind: "webhook_queue", Key: []string{"webhook", "type", "subject"}, Refers: `EXISTS (SELECT FROM badged.webhooks AS w WHERE w.name = r.webhook)`},
	}
	for _, t := range slices.Clone(all[:6]) {
		all = append(all, Table{Kind: t.Kind, Suffix: "_baseline", Form: Frozen, Key: t.Key})
	}
	all = append(all, Table{Kind: "keys", Suffix: "_baseline", Form: Frozen, Key: []string{"key", "generation"}})
	return append(all,
		Table{Kind: "dedup_filters", Shared: true, Key: []string{"run", "first"}},
		Table{Kind: "dedup_runs", Shared: true, Form: Whole},
		Table{Kind: "dedup_generations", Shared: true, Form: Whole, Places: Between},
		Table{Kind: "late_folds", Shared: true, Key: []string{"number"}, Places: Between},
		Table{Kind: "dead_letters", Shared: true, Form: Whole, Places: OfRow},
		Table{Kind: "settled_letters", Shared: true, Form: Whole, Places: OfRow},
		Table{Kind: "healed_users", Shared: true, Key: []string{"user_id"}},
		Table{Kind: "expiry_progress", Shared: true, Form: Whole},
		Table{Kind: "notifier_partitions", Shared: true, Form: Whole},
		Table{Kind: "tail_partitions", Shared: true, Form: Whole},
		Table{Kind: "ingest_places", Shared: true, Form: Whole},
		Table{Kind: "baselines", Shared: true, Form: Whole, Places: Between},
		Table{Kind: "archived_files", Shared: true, Form: Whole},
	)
}

// Name returns the name of the table of a partition.
func (t Table) Name(partition int) string {
	if t.Shared {
		return "badged." + t.Kind
	}
	return fmt.Sprintf("badged.%s_p%02d%s", t.Kind, partition, t.Suffix)
}

// InRounds reports whether the rounds copy all rows, as if they had changed, rather than
// only those that change behind a copy: if they are few.
func (t Table) InRounds() bool { return t.Form == Whole || t.Places != NoPlace }

// Of returns the condition for the rows t of a partition.
func (t Table) Of(partition int) string {
	if t.Shared {
		return fmt.Sprintf("t.partition_id = %d", partition)
	}
	return "true"
}

// Upsert returns the clause by which a row that is inserted replaces the one with its key,
// but for some columns.
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

// Column is a column of a table.
type Column struct {
	Name string
	// Type is its type as Postgres writes it.
	Type string
}

// Columns are those of a table.
type Columns []Column

// List returns the quoted names, each with a prefix.
func (c Columns) List(prefix string) string {
	var quoted []string
	for _, one := range c {
		quoted = append(quoted, prefix+Quote(one.Name))
	}
	return strings.Join(quoted, ", ")
}

// Of returns the named columns.
func (c Columns) Of(names []string) Columns {
	var found Columns
	for _, n := range names {
		found = append(found, c[slices.IndexFunc(c, func(one Column) bool { return one.Name == n })])
	}
	return found
}

// Without returns all but the named columns.
func (c Columns) Without(names ...string) Columns {
	return slices.DeleteFunc(slices.Clone(c), func(one Column) bool { return slices.Contains(names, one.Name) })
}

// Texts returns the columns as an array of text.
func (c Columns) Texts(prefix string) string {
	return `ARRAY[` + strings.Join(strings.Split(c.List(prefix), ", "), "::text, ") + `::text]`
}

// Literals returns the values of the columns, which are given as text.
func (c Columns) Literals(values []string) string {
	var quoted []string
	for i, one := range c {
		quoted = append(quoted, Literal(values[i])+"::"+one.Type)
	}
	return strings.Join(quoted, ", ")
}

// FromKey returns expressions of the values of the columns from an array of text.
func (c Columns) FromKey(array string) string {
	var values []string
	for i, one := range c {
		values = append(values, fmt.Sprintf("(%s)[%d]::%s", array, i+1, one.Type))
	}
	return strings.Join(values, ", ")
}

// Quote quotes a name.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Literal quotes a text.
func Literal(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
