// Package partition is the registry of the tables that have rows of partitions. For each table it
// says what the key is, how rows are copied again if they change while the partition is copied,
// which columns are places in the log, and which rows each of the two new partitions of a split
// gets.
//
// It does not know connections: it returns SQL that its callers run. ADR 83 has the reasons.
package partition

import (
	"fmt"
	"slices"
	"strings"
)

// Form says how rows of a table are copied again if they change while a move or a split copies
// the partition.
type Form int

const (
	// ByKey: each changed row is copied again, by its key.
	ByKey Form = iota
	// Whole: if any row changes, all rows of the partition are copied again. Tables with few
	// rows have this form.
	Whole
	// Frozen: no row changes while the partition is copied.
	Frozen
)

// Table describes a table with rows of partitions.
type Table struct {
	// Kind is the name of the table, without the partition.
	Kind string
	// Shared is true if one table has the rows of all partitions. Otherwise each partition has a
	// table of its own.
	Shared bool
	// Suffix follows the partition in the name of the table, such as "_baseline".
	Suffix string
	Form   Form
	// Key are the columns of the primary key, without the partition.
	Key []string
	// Places says what the columns transaction_id and "offset" refer to, if the table has them.
	Places Place
	// Refers is an SQL condition for a table with a foreign key. It is true for a row r if the
	// target of the copy has the row to which r refers; other rows are not copied. It is "" if the
	// table has no foreign key. pNN in the condition stands for the partition.
	Refers string
}

// Place is the meaning of the places in the log that a table stores.
type Place int

const (
	// NoPlace: the table has no places.
	NoPlace Place = iota
	// OfRow: the place of a row of the log. The row itself may be archived and removed by now.
	OfRow
	// Between: a place between two rows of the log.
	Between
)

// folded is the number of tables that the fold writes: they are the first entries of Tables. For
// each of these tables, Tables also has a table with the suffix "_baseline".
const folded = 6

// Tables returns all tables whose rows are copied with a partition. A table with a foreign key
// comes after the table to which it refers. The list omits the log, the positions of the log's
// readers, and badged.partitions, since moves and splits copy these tables separately.
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
	for _, t := range slices.Clone(all[:folded]) {
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

// Name returns the name of the table for a partition.
func (t Table) Name(partition int) string {
	if t.Shared {
		return "badged." + t.Kind
	}
	return fmt.Sprintf("badged.%s_p%02d%s", t.Kind, partition, t.Suffix)
}

// InRounds reports whether the first copy of a partition skips the table. Then only the rounds,
// which copy changed rows, copy the table: the first round copies all its rows, as if all had
// changed. InRounds is true for tables of the form Whole, which are small, and for tables with
// places.
func (t Table) InRounds() bool { return t.Form == Whole || t.Places != NoPlace }

// Of returns the condition that selects the rows t of a partition.
func (t Table) Of(partition int) string {
	if t.Shared {
		return fmt.Sprintf("t.partition_id = %d", partition)
	}
	return "true"
}

// OwnTables returns the names of the tables that have only rows of this partition: the log, and
// all tables that are not Shared.
func OwnTables(partition int) []string {
	names := []string{Log(partition)}
	for _, t := range Tables() {
		if !t.Shared {
			names = append(names, t.Name(partition))
		}
	}
	return names
}

// Log returns the name of the log of a partition.
func Log(partition int) string { return Table{Kind: "events"}.Name(partition) }

// State returns the names of the tables that the fold writes for a partition. Before each of these
// tables it lists the partitioned table to which the table is attached.
func State(partition int) (names []string) {
	for _, t := range Tables()[:folded] {
		names = append(names, "badged."+t.Kind, t.Name(partition))
	}
	return names
}

// Baseline returns the names of the tables with the baseline of a partition.
func Baseline(partition int) (names []string) {
	for _, t := range Tables() {
		if t.Form == Frozen {
			names = append(names, t.Name(partition))
		}
	}
	return names
}

// WithPlaces returns the tables that store places in the log, except the log itself and the table
// with the positions of its readers.
func WithPlaces() []Table {
	return slices.DeleteFunc(Tables(), func(t Table) bool { return t.Places == NoPlace })
}

// PlacesSQL returns a query for all places in the log that the tables of a partition store. The
// result has the columns transaction_id and "offset". `partition` is an SQL expression for the
// number of the partition.
func PlacesSQL(partition string) string {
	var queries []string
	for _, t := range WithPlaces() {
		queries = append(queries, `SELECT transaction_id, "offset" FROM badged.`+t.Kind+` WHERE partition_id = `+partition)
	}
	return strings.Join(queries, " UNION ALL ")
}

// Watched returns the names of all tables whose changes are recorded while a partition is
// copied.
func Watched(partition int) []string {
	names := OwnTables(partition)
	for _, t := range Tables() {
		if t.Shared {
			names = append(names, t.Name(partition))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
