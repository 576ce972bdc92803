package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/pg/query"
)

// comparison compares the tables of a partition with its log.
type comparison struct {
	snapshot *Snapshot
	options  VerifyOptions
	healed   map[string]healedVersions
	result   Verified
	// roomsDone is true if the rows of rooms need not be compared: they were compared with the
	// first share of the users, or the caller heals a user and so ignores rooms.
	roomsDone bool
}

func (snapshot *Snapshot) newComparison(ctx context.Context, options VerifyOptions) (*comparison, error) {
	healed, err := snapshot.healedUsers(ctx)
	return &comparison{snapshot: snapshot, options: options, healed: healed, result: Verified{Position: snapshot.Position}}, err
}

// compare compares the rows of the users for which r.Wants is true, and of rooms, with the state in
// r. If the options name users, it compares only the rooms in r, else all rooms. It removes the
// users and conversations that it has compared from r.
func (c *comparison) compare(ctx context.Context, r *Replay) error {
	var users, rooms []string // nil means all
	if err := c.snapshot.ScanTables(ctx, len(c.options.Users) == 0); err != nil {
		return err
	}
	if len(c.options.Users) > 0 {
		users = c.options.Users
		rooms = slices.AppendSeq([]string{}, maps.Keys(r.Rooms))
	}
	var all []*expectedRows
	if !c.roomsDone {
		c.roomsDone = true
		all = append(all, roomRows(r, rooms), chunkRows(r, rooms))
	}
	all = append(all, markRows(r, rooms), c.conversationRows(r, users), pathRows(r, users), c.userRows(r, users))
	return c.compareRows(ctx, r, all...)
}

// CompareTables compares the live tables with the tables whose names end with suffix, and calls
// `found` for each difference. It compares only the rows of the given users and rooms. It does not
// compare the rows of marks (see Mark).
func (snapshot *Snapshot) CompareTables(ctx context.Context, suffix string, users, rooms []string, found func(Difference)) error {
	c, err := snapshot.newComparison(ctx, VerifyOptions{Users: users, Found: found})
	if err != nil {
		return err
	}
	r := snapshot.newReplay(func(string) bool { return true }, nil)
	var all []*expectedRows
	if len(users) > 0 {
		if err := snapshot.loadUsers(ctx, r, suffix, users, func() {}); err != nil {
			return err
		}
		all = append(all, c.conversationRows(r, users), pathRows(r, users), c.userRows(r, users))
	}
	if len(rooms) > 0 {
		if err := snapshot.loadRooms(ctx, r, suffix, rooms); err != nil {
			return err
		}
		all = append(all, roomRows(r, rooms), chunkRows(r, rooms))
	}
	return c.compareRows(ctx, r, all...)
}

// table is a table to compare.
type table struct {
	name    string // without the partition
	columns []store.Column
	// keys is the number of columns of the primary key. These columns come first in `columns`, and
	// the first column has the id of the user or room.
	keys int
}

func tableOf(name string, row interface{ Columns() []store.Column }, keys int) table {
	return table{name, row.Columns(), keys}
}

// rowKey has the values of the columns of a row's primary key, at most three, as text.
type rowKey [3]string

// difference returns a Difference with the user and the conversation of a row, and no values. For
// a row about a part of a user or room, such as a category, Field is a text like " of category
// a/b", which the method found appends to the name of a column.
func (t *table) difference(key rowKey) (d Difference) {
	for i := range t.keys {
		switch t.columns[i].Name {
		case "user_id":
			d.UserID = key[i]
		case "conversation_id":
			d.ConversationID = key[i]
		case "category":
			d.Field = " of category " + key[i]
		case "bound":
			d.Field = " of the chunk up to " + key[i]
		case "seq":
			d.Field = " of the mark of message " + key[i]
		}
	}
	return d
}

// expectedRows describes the rows that a table should have according to the log.
type expectedRows struct {
	table
	// ids are the users or rooms to compare; nil means all.
	ids []string
	// take is called for each row in the table, with the values of its key and of its other
	// columns. It loads the row that the log expects for this key into the columns of table.
	take func(key rowKey, stored []string) expected
	// rest is called after the last call of take. It calls f with the key of each expected row
	// for which take was not called: the table does not have this row.
	rest func(f func(rowKey))
}

// expected says which row the table should have for a key, according to the log.
type expected int

const (
	noRow    expected = iota
	oneRow            // only the row that take has loaded
	anyRow            // any row or no row is right, since the row has no effect
	emptyRow          // no row, or the empty row that take has loaded
)

func (c *comparison) compareRows(ctx context.Context, r *Replay, all ...*expectedRows) error {
	for _, t := range all {
		if err := c.compareTable(ctx, r, t); err != nil {
			return err
		}
	}
	return nil
}

// compareTable compares the rows of a table with the expected rows. It skips rows of users for
// which r.Wants is false.
func (c *comparison) compareTable(ctx context.Context, r *Replay, t *expectedRows) error {
	values, targets, list := make([]string, len(t.columns)), make([]any, len(t.columns)), make([]string, len(t.columns))
	for i := range t.columns {
		list[i], targets[i] = fmt.Sprintf("coalesce(%s::text, '')", t.columns[i].Name), &values[i]
	}
	sql, args := fmt.Sprintf("SELECT %s FROM badged.%s_p%02d", strings.Join(list, ", "), t.name, c.snapshot.Partition), []any(nil)
	if t.ids != nil {
		sql, args = sql+" WHERE "+t.columns[0].Name+" = ANY ($1::text[])", []any{t.ids}
	}
	stored := values[t.keys:]
	if err := query.Each(ctx, c.snapshot.Tx, "compare the "+strings.ReplaceAll(t.name, "_", " "), sql, args, targets, func() error {
		var key rowKey
		copy(key[:], values[:t.keys])
		at := t.difference(key)
		if at.UserID != "" && !r.Wants(at.UserID) {
			return nil
		}
		log := t.take(key, stored)
		differing := differences(t.columns[t.keys:], stored)
		switch {
		case log == noRow || log == emptyRow && len(differing) > 0:
			c.found(at, Difference{Field: rowField, Table: present, Log: absent})
		case log == oneRow:
			c.found(at, differing...)
		}
		return nil
	}); err != nil {
		return err
	}
	t.rest(func(key rowKey) { c.found(t.difference(key), Difference{Field: rowField, Table: absent, Log: present}) })
	return nil
}

// found reports the differing columns of a row. `where` identifies the row.
func (c *comparison) found(where Difference, differing ...Difference) {
	for _, d := range differing {
		d.Partition, d.UserID, d.ConversationID = c.snapshot.Partition, where.UserID, where.ConversationID
		d.Field += where.Field
		c.result.Differences++
		c.options.Found(d)
	}
}

// differences returns an entry for each column whose value differs: `columns` has the values
// according to the log, and `table` has the values in the table.
func differences(columns []store.Column, table []string) (all []Difference) {
	for i := range columns {
		c, have, log := &columns[i], table[i], columns[i].Text()
		if c.Name == "categories" {
			have = normalCategories(have)
		}
		if have != log {
			all = append(all, Difference{Field: c.Name, Table: c.Show(have), Log: c.Show(log)})
		}
	}
	return all
}

// normalCategories sorts the category paths in the text of a column, so that they have the order in
// which a replay writes them. If it cannot parse the text, it returns the text unchanged.
func normalCategories(text string) string {
	paths, err := badge.Restore(text)
	if err != nil {
		return text
	}
	return paths.String()
}

// userRows returns the expected rows of the users of r. Comparing removes the users from r.
func (c *comparison) userRows(r *Replay, ids []string) *expectedRows {
	var row store.UserRow
	return &expectedRows{tableOf("users", &row, store.UserKey), ids, func(key rowKey, _ []string) expected {
		log, healed := *r.user(key[0]), c.healed[key[0]]
		delete(r.Users, key[0])
		log.Version = healed.user(log.Version)
		row.Set(&log)
		switch {
		case log.Exists():
			c.result.Users++
		case healed.version == 0:
			return noRow
		}
		return oneRow
	}, func(f func(rowKey)) {
		for _, u := range store.Sorted(r.Users) {
			if u.Exists() {
				c.result.Users++
				f(rowKey{u.ID})
			}
		}
	}}
}

// conversationRows returns the expected conversations of the users of r. Comparing removes the
// conversations from r. A healed user may have an empty row for a conversation that is not in
// the log: healing empties such a row instead of deleting it, so that clients get the change.
func (c *comparison) conversationRows(r *Replay, ids []string) *expectedRows {
	var row store.ConversationRow
	return &expectedRows{tableOf("conversations", &row, store.ConversationKey), ids, func(key rowKey, stored []string) expected {
		u, healed := r.user(key[0]), c.healed[key[0]]
		log, known := u.Conversations[key[1]]
		delete(u.Conversations, key[1])
		if known = known && log.Touched; !known {
			log = badge.NewUser(key[0]).Conversation(key[1])
		}
		expects := *log
		expects.Version = healed.conversation(log.Version, stored[0])
		row.Set(key[0], &expects)
		switch {
		case known:
			c.result.Conversations++
			return oneRow
		case healed.version == 0:
			return noRow
		}
		return emptyRow
	}, func(f func(rowKey)) {
		for _, u := range store.Sorted(r.Users) {
			for _, log := range store.Sorted(u.Conversations) {
				if log.Touched {
					c.result.Conversations++
					f(rowKey{u.ID, log.ID})
				}
			}
		}
	}}
}

// pathRows returns the expected rows of the table paths. A user has such rows only if the user has
// too many category paths to store them in the user's own row.
func pathRows(r *Replay, ids []string) *expectedRows {
	var row store.PathRow
	paths := map[rowKey]*badge.Path{}
	for _, u := range r.Users {
		for _, p := range u.Paths.AllRows() {
			paths[rowKey{u.ID, p.Name}] = p
		}
	}
	return rowsIn(tableOf("paths", &row, store.PathKey), ids, paths, func(key rowKey, p *badge.Path) { row.Set(r.Users[key[0]], p) })
}

func roomRows(r *Replay, ids []string) *expectedRows {
	var row store.RoomRow
	rooms := map[rowKey]*badge.Room{}
	for id, room := range r.Rooms {
		if room.Exists() {
			rooms[rowKey{id}] = room
		}
	}
	return rowsIn(tableOf("rooms", &row, store.RoomKey), ids, rooms, func(_ rowKey, room *badge.Room) { row.Set(room) })
}

// chunkRows returns the expected rows of closed chunks, which have the older messages of rooms.
func chunkRows(r *Replay, ids []string) *expectedRows {
	var row store.ChunkRow
	chunks := map[rowKey]*badge.Chunk{}
	for id, room := range r.Rooms {
		for _, chunk := range room.Closed {
			chunks[rowKey{id, number(chunk.Bound)}] = chunk
		}
	}
	return rowsIn(tableOf("room_chunks", &row, store.ChunkKey), ids, chunks, func(key rowKey, chunk *badge.Chunk) { row.Set(key[0], chunk) })
}

// markRows returns the expected rows of marks (see Mark) above the read positions of their users. A
// mark at or below a read position has no effect, so its row may exist or not.
func markRows(r *Replay, ids []string) *expectedRows {
	var row store.MarkRow
	marks := map[rowKey]Mark{}
	for _, m := range r.Marks() {
		marks[rowKey{m.Room, number(m.Seq), m.User}] = m
	}
	t := rowsIn(tableOf("room_marks", &row, store.MarkKey), ids, marks, func(_ rowKey, m Mark) { row.Set(m.Room, m.Seq, m.User, m.Own) })
	known := t.take
	t.take = func(key rowKey, stored []string) expected {
		if log := known(key, stored); log != noRow {
			return log
		}
		seq, err := strconv.ParseInt(key[1], 10, 64)
		if c := r.user(key[2]).Conversations[key[0]]; err == nil && c != nil && c.Member() && seq > c.ReadSeq {
			return noRow
		}
		return anyRow
	}
	return t
}

// rowsIn returns the expectedRows of a table. The map `log` has the rows according to the log.
// Comparing removes the rows from the map. The function `set` loads a row into the columns of t.
func rowsIn[V any](t table, ids []string, log map[rowKey]V, set func(rowKey, V)) *expectedRows {
	return &expectedRows{t, ids, func(key rowKey, _ []string) expected {
		v, ok := log[key]
		if !ok {
			return noRow
		}
		delete(log, key)
		set(key, v)
		return oneRow
	}, func(f func(rowKey)) {
		for key := range log {
			f(key)
		}
	}}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// DifferingUsers returns the users whose rows differ between the live tables and the tables
// whose names end with suffix. It compares only the given users; nil means all users.
func (snapshot *Snapshot) DifferingUsers(ctx context.Context, suffix string, users []string) ([]string, error) {
	differing, err := snapshot.differing(ctx, suffix, users, tableOf("users", new(store.UserRow), store.UserKey),
		tableOf("conversations", new(store.ConversationRow), store.ConversationKey), tableOf("paths", new(store.PathRow), store.PathKey))
	if err != nil {
		return nil, err
	}
	healed, err := snapshot.healedUsers(ctx)
	if err != nil {
		return nil, err
	}
	// The versions of healed users always differ. So compare these users by CompareTables, which
	// computes the versions that healing has given them.
	var unsure []string
	differing = slices.DeleteFunc(differing, func(id string) bool {
		_, ok := healed[id]
		if ok {
			unsure = append(unsure, id)
		}
		return ok
	})
	err = snapshot.CompareTables(ctx, suffix, unsure, nil, func(d Difference) { differing = append(differing, d.UserID) })
	slices.Sort(differing)
	return slices.Compact(differing), err
}

// DifferingRooms returns the rooms whose rows differ between the live tables and the tables
// whose names end with suffix. It compares only the given rooms; nil means all rooms.
func (snapshot *Snapshot) DifferingRooms(ctx context.Context, suffix string, rooms []string) ([]string, error) {
	return snapshot.differing(ctx, suffix, rooms, tableOf("rooms", new(store.RoomRow), store.RoomKey),
		tableOf("room_chunks", new(store.ChunkRow), store.ChunkKey), tableOf("room_marks", new(store.MarkRow), store.MarkKey))
}

// differing compares each live table with another table, whose name is the name of the live table
// followed by suffix. It returns the ids of users or rooms with a row that differs, or that only
// one of the two tables has. It compares only rows of the given ids; nil means all.
func (snapshot *Snapshot) differing(ctx context.Context, suffix string, ids []string, tables ...table) ([]string, error) {
	if err := snapshot.ScanTables(ctx, ids == nil); err != nil {
		return nil, err
	}
	where, args := "true", []any(nil)
	if ids != nil {
		where, args = tables[0].columns[0].Name+" = ANY ($1::text[])", []any{ids}
	}
	var each []string
	for _, t := range tables {
		var names, live, log []string
		for i := range t.columns {
			names = append(names, t.columns[i].Name)
			live, log = append(live, "live."+names[i]), append(log, "log."+names[i])
		}
		source := func(suffix string) string {
			name := fmt.Sprintf("badged.%s_p%02d%s", t.name, snapshot.Partition, suffix)
			if t.name == "room_marks" { // marks at or below the read position have no effect
				name += fmt.Sprintf(" JOIN badged.conversations_p%02d%s USING (conversation_id, user_id) WHERE seq > read_seq AND joined IS NOT NULL AND", snapshot.Partition, suffix)
			} else {
				name += " WHERE"
			}
			return fmt.Sprintf("(SELECT %s FROM %s %s)", strings.Join(names, ", "), name, where)
		}
		each = append(each, fmt.Sprintf("SELECT %s FROM %s AS live FULL JOIN %s AS log USING (%s) WHERE (%s) IS DISTINCT FROM (%s)",
			names[0], source(""), source(suffix), strings.Join(names[:t.keys], ", "), strings.Join(live, ", "), strings.Join(log, ", ")))
	}
	return query.All(ctx, snapshot.Tx, fmt.Sprintf("compare the tables of partition %d with those that end with %s", snapshot.Partition, suffix),
		pgx.RowTo[string], strings.Join(each, "\nUNION\n"), args...)
}
