package replay

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
)

// Verifier compares the tables of one database with its log. It is safe for
// concurrent use.
type Verifier struct {
	pool *pgxpool.Pool
	log  *events.Log
	// archive, if not nil, has what was cut off the log.
	archive *archive.Archive
}

// Held returns the partitions of the database, which may be a shard.
func (v *Verifier) Held(ctx context.Context) ([]int, error) { return eventlog.Held(ctx, v.pool) }

// NewVerifier returns a verifier of a database and its log.
func NewVerifier(pool *pgxpool.Pool, log *events.Log) *Verifier {
	return &Verifier{pool: pool, log: log}
}

// WithArchive returns a verifier that folds an archive of the log and then the
// log, instead of starting at the baseline.
func (v *Verifier) WithArchive(a *archive.Archive) *Verifier {
	return &Verifier{pool: v.pool, log: v.log, archive: a}
}

// VerifyOptions says what is verified of a partition, and how.
type VerifyOptions struct {
	// Users are the users to compare, all of the partition. Empty means every
	// user in the tables or the log.
	Users []string
	// Memory is roughly how many bytes the state of users may take at a time;
	// if they need more, the log is read more often. Default 256 MiB.
	Memory int64
	// Found is called for each difference. Required.
	Found func(Difference)
	// Progress, if not nil, is told how many events are read, except for a few
	// Users: the server searches the log for them.
	Progress Progress
}

// Verified is what was compared, and the result.
type Verified struct {
	// Position is how far the log and the tables were folded.
	Position events.Position
	// Users and Conversations count those that the log knows.
	Users, Conversations int64
	// Differences is how often Found was called.
	Differences int64
}

// Difference is a place where the tables differ from the log.
type Difference struct {
	Partition      int    `json:"partition" minimum:"0" doc:"The partition of the rows."`
	UserID         string `json:"user_id" doc:"The user; empty if the difference is in a room."`
	ConversationID string `json:"conversation_id,omitempty" doc:"The conversation or room; absent if the difference is in the user's own row."`
	Field          string `json:"field" doc:"The column, or row if a whole row is missing or superfluous."`
	Table          string `json:"table" doc:"The value in the tables as text; for a row, present or absent."`
	Log            string `json:"log" doc:"The value by the log."`
}

// String returns the difference for people. Long values are cut.
func (d Difference) String() string {
	var whose string
	switch {
	case d.UserID == "":
		whose = fmt.Sprintf("room %q", d.ConversationID)
	case d.ConversationID == "":
		whose = fmt.Sprintf("user %q", d.UserID)
	default:
		whose = fmt.Sprintf("user %q, conversation %q", d.UserID, d.ConversationID)
	}
	if d.Field == rowField {
		return fmt.Sprintf("%s: the row is %s in the table, %s by the log", whose, d.Table, d.Log)
	}
	return fmt.Sprintf("%s: %s is %s in the table, %s by the log", whose, d.Field, shown(d.Table), shown(d.Log))
}

const (
	rowField = "row"
	present  = "present"
	absent   = "absent"
)

// shown returns a value for people.
func shown(value string) string {
	if value == "" {
		return "empty"
	}
	return cut(value)
}

// cut cuts a value that is too long to read.
func cut(value string) string {
	const most = 120
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "…"
}

const defaultVerifyMemory = 256 << 20

// Verify replays the log of a partition up to the position of the tables and
// compares the two there, while new events keep being folded. It holds one
// read-only transaction on one connection. That delays no event, but while it
// lasts vacuum cannot remove dead rows anywhere in the database.
func (v *Verifier) Verify(ctx context.Context, partition int, options VerifyOptions) (Verified, error) {
	if options.Memory <= 0 {
		options.Memory = defaultVerifyMemory
	}
	if options.Progress == nil {
		options.Progress = Unwatched{}
	}
	c := Comparison{Options: options}
	err := WithSnapshot(ctx, v.pool, partition, v.log.Partitions(), func(in *Snapshot) error {
		c.In = in
		c.result.Position = in.Position
		err := in.UseArchive(ctx, v.archive)
		if err != nil {
			return err
		}
		if c.Healed, err = in.HealedUsers(ctx); err != nil {
			return err
		}
		if n := len(options.Users); n > 0 && n <= maxSought {
			return c.few(ctx)
		}
		return c.many(ctx)
	})
	if err != nil {
		return c.result, fmt.Errorf("verify partition %d: %w", partition, err)
	}
	return c.result, nil
}

// samplePages is from how many pages of a table users are drawn, at least.
const samplePages = 50

// Sample returns up to n users of a partition, drawn at random from its tables.
func (v *Verifier) Sample(ctx context.Context, partition, n int) ([]string, error) {
	rows, _ := v.pool.Query(ctx, statements.Of(partition, "sample users"), n, max(samplePages, n))
	users, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("draw users of partition %d: %w", partition, err)
	}
	return users, nil
}

// Comparison is the verification of one partition.
type Comparison struct {
	In      *Snapshot
	Options VerifyOptions
	Healed  map[string]HealedVersions
	result  Verified
	// roomsDone is set once the rooms have been compared, which are the same for all
	// shares of the users.
	roomsDone bool
}

// few compares users for which the log is searched.
func (c *Comparison) few(ctx context.Context) error {
	r, err := c.In.replayOf(ctx, c.Options.Users)
	if err != nil {
		return err
	}
	return c.Compare(ctx, r)
}

// many compares all users, or more than it pays to search for, share by share.
func (c *Comparison) many(ctx context.Context) error {
	length, err := c.In.Length(ctx)
	if err != nil {
		return err
	}
	c.Options.Progress.Planned(c.In.Partition, length)
	// The repeats are the same for every share. Find them in a separate pass only
	// if the keys do not fit into memory.
	var repeats map[events.Place]store.UserSet
	half := max(c.Options.Memory/2, keyWeight)
	keys, err := c.In.weighKeys(ctx, length)
	if err != nil {
		return err
	}
	if keys > half {
		c.Options.Progress.Planned(c.In.Partition, length*(keys/half+1))
		if repeats, err = c.In.repeats(ctx, keys, half, c.read); err != nil {
			return err
		}
	}
	listed := make(map[string]struct{}, len(c.Options.Users))
	for _, u := range c.Options.Users {
		listed[u] = struct{}{}
	}
	wants := func(user string) bool {
		_, ok := listed[user]
		return ok || len(listed) == 0
	}
	for s, more := AllUsers(), true; more; {
		r, err := c.In.ReplayShare(ctx, &s, wants, repeats, half, c.read)
		if err != nil {
			return err
		}
		if err := c.Compare(ctx, r); err != nil {
			return err
		}
		if s, more = s.Next(); more {
			c.Options.Progress.Planned(c.In.Partition, length)
		}
	}
	return nil
}

// read reports records that were read.
func (c *Comparison) read(records int) { c.Options.Progress.Done(records, records) }

func (c *Comparison) found(d Difference) {
	d.Partition = c.In.Partition
	c.result.Differences++
	c.Options.Found(d)
}

// Compare compares the rows of the users that r wants with r, which it
// empties.
func (c *Comparison) Compare(ctx context.Context, r *Replay) error {
	if err := c.In.ScanTables(ctx, len(c.Options.Users) == 0); err != nil {
		return err
	}
	if r.Rooms != nil {
		if err := c.compareRooms(ctx, r); err != nil {
			return err
		}
	}
	if err := c.compareConversations(ctx, r); err != nil {
		return err
	}
	if err := c.comparePaths(ctx, r); err != nil {
		return err
	}
	return c.compareUsers(ctx, r)
}

// where returns the condition on the rows to compare, with its arguments.
func (c *Comparison) where() (string, []any) {
	if len(c.Options.Users) == 0 {
		return "true", nil
	}
	return "user_id = ANY ($1::text[])", []any{c.Options.Users}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// texts returns the select list of columns as text, empty for null, and the
// values that it scans into.
func texts(columns []store.Column) (sql string, values []string, targets []any) {
	values = make([]string, len(columns))
	for i := range columns {
		sql += fmt.Sprintf(", coalesce(%s::text, '')", columns[i].Name)
		targets = append(targets, &values[i])
	}
	return sql, values, targets
}

func (c *Comparison) compareConversations(ctx context.Context, r *Replay) error {
	var row store.ConversationRow
	columns := row.Columns()[store.ConversationKey+1:]
	sql, values, targets := texts(columns)
	where, args := c.where()
	rows, _ := c.In.Tx.Query(ctx, fmt.Sprintf(`SELECT user_id, conversation_id, version%s
FROM badged.conversations_p%02d WHERE %s`, sql, c.In.Partition, where), args...)
	var userID, id string
	var version int64
	_, err := pgx.ForEachRow(rows, append([]any{&userID, &id, &version}, targets...), func() error {
		if !r.Wants(userID) {
			return nil
		}
		u := r.user(userID)
		log, known := u.Conversations[id]
		if known = known && log.Touched; !known {
			// A healed user may keep an empty row, so that clients are told.
			log = badge.NewUser(userID).Conversation(id)
		}
		delete(u.Conversations, id)
		row.Set(userID, log)
		differences := differing(columns, values)
		if v := c.Healed[userID]; !known && (v.version == 0 || len(differences) > 0 || !v.fits(version, 0)) {
			c.found(Difference{UserID: userID, ConversationID: id, Field: rowField, Table: present, Log: absent})
			return nil
		} else if !v.fits(version, log.Version) {
			differences = append(differences, Difference{
				Field: "version", Table: number(version), Log: number(max(log.Version+v.ahead, v.version)),
			})
		}
		for _, d := range differences {
			d.UserID, d.ConversationID = userID, id
			c.found(d)
		}
		if known {
			c.result.Conversations++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the conversations: %w", err)
	}
	for _, u := range store.Sorted(r.Users) {
		for _, log := range store.Sorted(u.Conversations) {
			if log.Touched {
				c.result.Conversations++
				c.found(Difference{UserID: u.ID, ConversationID: log.ID, Field: rowField, Table: absent, Log: present})
			}
		}
	}
	return nil
}

func (c *Comparison) compareUsers(ctx context.Context, r *Replay) error {
	var row store.UserRow
	columns := row.Columns()[store.UserKey+1:]
	sql, values, targets := texts(columns)
	where, args := c.where()
	rows, _ := c.In.Tx.Query(ctx, fmt.Sprintf(`SELECT user_id, version%s
FROM badged.users_p%02d WHERE %s`, sql, c.In.Partition, where), args...)
	var id string
	var version int64
	_, err := pgx.ForEachRow(rows, append([]any{&id, &version}, targets...), func() error {
		if !r.Wants(id) {
			return nil
		}
		log := r.user(id)
		delete(r.Users, id)
		v := c.Healed[id]
		if log.Exists() {
			c.result.Users++
		} else if v.version == 0 {
			c.found(Difference{UserID: id, Field: rowField, Table: present, Log: absent})
			return nil
		}
		if want := v.user(log.Version); version != want {
			c.found(Difference{UserID: id, Field: "version", Table: number(version), Log: number(want)})
		}
		for i := range columns {
			if columns[i].Name == "categories" {
				values[i] = normalCategories(values[i])
			}
		}
		row.Set(log)
		for _, d := range differing(columns, values) {
			d.UserID = id
			c.found(d)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the users: %w", err)
	}
	for _, u := range store.Sorted(r.Users) {
		if u.Exists() {
			c.result.Users++
			c.found(Difference{UserID: u.ID, Field: rowField, Table: absent, Log: present})
		}
	}
	return nil
}

// normalCategories returns the paths of a row in their order by the log, and any other text
// unchanged.
func normalCategories(text string) string {
	paths, err := badge.Restore(text)
	if err != nil {
		return text
	}
	return paths.String()
}

// differing returns the columns whose values differ from those of the table.
func differing(columns []store.Column, table []string) []Difference {
	var ds []Difference
	for i := range columns {
		if log := columns[i].Text(); table[i] != log {
			c := &columns[i]
			ds = append(ds, Difference{Field: c.Name, Table: c.Show(table[i]), Log: c.Show(log)})
		}
	}
	return slices.Clip(ds)
}
