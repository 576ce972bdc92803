package projector

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
)

// Verifier compares the tables of one database with its log. It is safe for
// concurrent use.
type Verifier struct {
	pool *pgxpool.Pool
	log  *events.Log
	// archive, where not nil, is what was cut off the log.
	archive *archive.Archive
}

// NewVerifier returns a verifier of a database and its log.
func NewVerifier(pool *pgxpool.Pool, log *events.Log) *Verifier {
	return &Verifier{pool: pool, log: log}
}

// From returns a verifier that folds an archive of the log, and then the log,
// where the other begins with what the tables were at the cut.
func (v *Verifier) From(a *archive.Archive) *Verifier {
	return &Verifier{pool: v.pool, log: v.log, archive: a}
}

// VerifyOptions says what is verified of a partition, and how.
type VerifyOptions struct {
	// Users are those that are compared, all of them of the partition. None
	// means everybody that the tables or the log know.
	Users []string
	// Memory is about how many bytes the state of users may take at a time;
	// with more, the log is gone through more often. Default 256 MiB.
	Memory int64
	// Found is called for each difference. Required.
	Found func(Difference)
	// Planned, where not nil, is called with how many events are going to be
	// gone through, on top of what was planned before; Done with how many have
	// been since. With a few Users neither is: the server searches for theirs.
	Planned func(events int64)
	Done    func(events int)
}

// Verified is what was compared, and with what result.
type Verified struct {
	// Position is how far the log was folded, and the tables were.
	Position events.Position
	// Users and Conversations are how many the log says something of.
	Users, Conversations int64
	// Differences is how often Found was called.
	Differences int64
}

// Difference is a place where the tables are not what the log says.
type Difference struct {
	Partition int    `json:"partition"`
	UserID    string `json:"user_id"`
	// ConversationID is empty where the difference is in the user's own row.
	ConversationID string `json:"conversation_id,omitempty"`
	// Field is a column of the row, or "row" where there should be none, or
	// should be one.
	Field string `json:"field"`
	// Table and Log are the values, as text; of a row, "present" or "absent".
	Table string `json:"table"`
	Log   string `json:"log"`
}

// String returns the difference as people read it. Long values are cut.
func (d Difference) String() string {
	whose := fmt.Sprintf("user %q", d.UserID)
	if d.ConversationID != "" {
		whose += fmt.Sprintf(", conversation %q", d.ConversationID)
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

// shown cuts a value that is too long to be read.
func shown(value string) string {
	const most = 120
	if value == "" {
		return "empty"
	}
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "…"
}

const defaultVerifyMemory = 256 << 20

// Verify folds the log of a partition again, up to where the tables are, and
// compares the two at that position, while events keep coming. It holds one
// transaction that only reads, on one connection: that delays no event, but
// while it lasts nothing that is updated anywhere in the database can be
// vacuumed.
func (v *Verifier) Verify(ctx context.Context, partition int, options VerifyOptions) (Verified, error) {
	if options.Memory <= 0 {
		options.Memory = defaultVerifyMemory
	}
	if options.Planned == nil {
		options.Planned = func(int64) {}
	}
	if options.Done == nil {
		options.Done = func(int) {}
	}
	c := comparison{options: options}
	err := atInstant(ctx, v.pool, partition, v.log.Partitions(), func(in *instant) error {
		c.in = in
		c.result.Position = in.position
		err := in.from(ctx, v.archive)
		if err != nil {
			return err
		}
		if c.mends, err = in.mends(ctx); err != nil {
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

// Sample returns up to n users of a partition, drawn at random from its tables.
func (v *Verifier) Sample(ctx context.Context, partition, n int) ([]string, error) {
	rows, err := v.pool.Query(ctx, fmt.Sprintf(`SELECT user_id FROM badged.users_p%02d ORDER BY random() LIMIT $1`, partition), n)
	if err != nil {
		return nil, fmt.Errorf("draw users of partition %d: %w", partition, err)
	}
	users, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("draw users of partition %d: %w", partition, err)
	}
	return users, nil
}

// comparison is one partition being verified.
type comparison struct {
	in      *instant
	options VerifyOptions
	mends   map[string]mend
	result  Verified
}

// few compares users that the log is searched for.
func (c *comparison) few(ctx context.Context) error {
	r, err := c.in.refoldOf(ctx, c.options.Users)
	if err != nil {
		return err
	}
	return c.compare(ctx, r)
}

// many compares everybody, or more users than it pays to search for, one share
// after another.
func (c *comparison) many(ctx context.Context) error {
	length, err := c.in.length(ctx)
	if err != nil {
		return err
	}
	c.options.Planned(length)
	// Which events are repeats is the same for every share, but not worth a
	// pass of its own where the keys of all fit in.
	var repeats map[events.Position]struct{}
	half := max(c.options.Memory/2, keyWeight)
	keys, err := c.in.countKeys(ctx)
	if err != nil {
		return err
	}
	if keys += length; keys*keyWeight > half {
		c.options.Planned(length * (keys*keyWeight/half + 1))
		if repeats, err = c.in.repeats(ctx, keys, half, c.options.Done); err != nil {
			return err
		}
	}
	listed := make(map[string]struct{}, len(c.options.Users))
	for _, u := range c.options.Users {
		listed[u] = struct{}{}
	}
	wants := func(user string) bool {
		_, ok := listed[user]
		return ok || len(listed) == 0
	}
	for s, more := everybody(), true; more; {
		r, err := c.in.refoldShare(ctx, &s, wants, repeats, half, c.options.Done)
		if err != nil {
			return err
		}
		if err := c.compare(ctx, r); err != nil {
			return err
		}
		if s, more = s.next(); more {
			c.options.Planned(length)
		}
	}
	return nil
}

func (c *comparison) found(d Difference) {
	d.Partition = c.in.partition
	c.result.Differences++
	c.options.Found(d)
}

// compare compares the rows of those users that r wants with r.
func (c *comparison) compare(ctx context.Context, r *refold) error {
	if err := c.in.scanTables(ctx, len(c.options.Users) == 0); err != nil {
		return err
	}
	if err := c.compareConversations(ctx, r); err != nil {
		return err
	}
	return c.compareUsers(ctx, r)
}

// where returns the condition on rows to be compared, with its arguments.
func (c *comparison) where() (string, []any) {
	if len(c.options.Users) == 0 {
		return "true", nil
	}
	return "user_id = ANY ($1::text[])", []any{c.options.Users}
}

// field is a column that is compared, and how it gets its value from the fold.
type field[T any] struct {
	name string
	// sql is the column as text, empty for null.
	sql string
	log func(T) string
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// userFields are the columns of a user beside its version.
func userFields() []field[*user] {
	return []field[*user]{
		{"total", `total::text`, func(u *user) string { return number(u.total) }},
		{"mentions", `mentions::text`, func(u *user) string { return number(u.mentions) }},
		{"categories", `categories::text`, func(u *user) string { return u.categories.String() }},
	}
}

// hourField is not compared where a row is from before the hour was kept.
const hourField = "delivered_hour"

// conversationFields are the columns of a conversation beside its version.
func conversationFields() []field[*conversation] {
	return []field[*conversation]{
		{"read_seq", `read_seq::text`, func(c *conversation) string { return number(c.readSeq) }},
		{"last_seq", `last_seq::text`, func(c *conversation) string { return number(c.lastSeq) }},
		{"left_seq", `coalesce(left_seq::text, '')`, func(c *conversation) string {
			if c.leftSeq == never {
				return ""
			}
			return number(c.leftSeq)
		}},
		{"category", `category`, func(c *conversation) string { return c.category }},
		{"level", `level::text`, func(c *conversation) string { return string(c.level) }},
		{"marked_unread", `marked_unread::text`, func(c *conversation) string { return strconv.FormatBool(c.marked) }},
		{"unread", `unread::text`, func(c *conversation) string { return number(c.unread.len()) }},
		{"mentions", `mentions::text`, func(c *conversation) string { return number(c.mentions.len()) }},
		{"unread_set", `unread_set::text`, func(c *conversation) string { return c.unread.String() }},
		{"mention_set", `mention_set::text`, func(c *conversation) string { return c.mentions.String() }},
		{"recalled_set", `recalled_set::text`, func(c *conversation) string { return c.recalled.String() }},
		{"unread_block", `coalesce(unread_block::text, '')`, func(c *conversation) string { return c.unread.block.String() }},
		{"mention_block", `coalesce(mention_block::text, '')`, func(c *conversation) string { return c.mentions.block.String() }},
		// Empty where nobody remembers it.
		{
			hourField, `CASE WHEN delivered_hour <> (SELECT unknown_delivered_hour FROM badged.settings) THEN delivered_hour::text ELSE '' END`,
			func(c *conversation) string { return number(c.deliveredHour) },
		},
	}
}

// columns returns what is selected of fields, and where it goes.
func columns[T any](fields []field[T]) (sql string, values []string, targets []any) {
	values = make([]string, len(fields))
	for i, f := range fields {
		sql += ", " + f.sql
		targets = append(targets, &values[i])
	}
	return sql, values, targets
}

func (c *comparison) compareConversations(ctx context.Context, r *refold) error {
	fields := conversationFields()
	sql, values, targets := columns(fields)
	where, args := c.where()
	rows, err := c.in.tx.Query(ctx, fmt.Sprintf(`SELECT user_id, conversation_id, version%s
FROM badged.conversations_p%02d WHERE %s`, sql, c.in.partition, where), args...)
	if err != nil {
		return fmt.Errorf("read the conversations: %w", err)
	}
	var userID, id string
	var version int64
	_, err = pgx.ForEachRow(rows, append([]any{&userID, &id, &version}, targets...), func() error {
		if !r.wants(userID) {
			return nil
		}
		u := r.user(userID)
		log, known := u.conversations[id]
		if known = known && log.touched; !known {
			// One who was mended may keep a row that says nothing, so that
			// clients hear of it.
			log = newUser(userID).conversation(id)
		}
		delete(u.conversations, id)
		for i := range fields {
			if fields[i].name == hourField && values[i] == "" {
				values[i] = fields[i].log(log)
			}
		}
		differences := differing(fields, values, log)
		if m := c.mends[userID]; !known && (m.version == 0 || len(differences) > 0 || !m.fits(version, 0)) {
			c.found(Difference{UserID: userID, ConversationID: id, Field: rowField, Table: present, Log: absent})
			return nil
		} else if !m.fits(version, log.version) {
			differences = append(differences, Difference{
				Field: "version", Table: number(version), Log: number(max(log.version+m.ahead, m.version)),
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
	for _, u := range sorted(r.users) {
		for _, log := range sorted(u.conversations) {
			if log.touched {
				c.result.Conversations++
				c.found(Difference{UserID: u.id, ConversationID: log.id, Field: rowField, Table: absent, Log: present})
			}
		}
	}
	return nil
}

func (c *comparison) compareUsers(ctx context.Context, r *refold) error {
	fields := userFields()
	sql, values, targets := columns(fields)
	where, args := c.where()
	rows, err := c.in.tx.Query(ctx, fmt.Sprintf(`SELECT user_id, version%s
FROM badged.users_p%02d WHERE %s`, sql, c.in.partition, where), args...)
	if err != nil {
		return fmt.Errorf("read the users: %w", err)
	}
	var id string
	var version int64
	_, err = pgx.ForEachRow(rows, append([]any{&id, &version}, targets...), func() error {
		if !r.wants(id) {
			return nil
		}
		log := r.user(id)
		delete(r.users, id)
		m := c.mends[id]
		if log.version > 0 {
			c.result.Users++
		} else if m.version == 0 {
			c.found(Difference{UserID: id, Field: rowField, Table: present, Log: absent})
			return nil
		}
		if want := m.user(log.version); version != want {
			c.found(Difference{UserID: id, Field: "version", Table: number(version), Log: number(want)})
		}
		for i := range fields {
			if fields[i].name == "categories" {
				values[i] = normalCategories(values[i])
			}
		}
		for _, d := range differing(fields, values, log) {
			d.UserID = id
			c.found(d)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the users: %w", err)
	}
	for _, u := range sorted(r.users) {
		if u.version > 0 {
			c.result.Users++
			c.found(Difference{UserID: u.id, Field: rowField, Table: absent, Log: present})
		}
	}
	return nil
}

// normalCategories returns totals by category in the order of categoryTotals,
// and anything else as it is.
func normalCategories(text string) string {
	var totals map[string]int64
	if json.Unmarshal([]byte(text), &totals) != nil {
		return text
	}
	return totalsOf(totals).String()
}

// differing returns the fields of a row that are not what the log says.
func differing[T any](fields []field[T], values []string, log T) []Difference {
	var ds []Difference
	for i, f := range fields {
		if want := f.log(log); values[i] != want {
			ds = append(ds, Difference{Field: f.name, Table: values[i], Log: want})
		}
	}
	return slices.Clip(ds)
}
