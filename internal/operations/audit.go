package operations

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations/deadletters"
)

// Entry is an action in the audit trail.
type Entry struct {
	ID        int64           `json:"id" doc:"The id of the entry."`
	Shard     string          `json:"shard,omitempty" doc:"The name of the shard that stores it; absent if there are no shards."`
	At        time.Time       `json:"at" doc:"When the action began."`
	Who       string          `json:"who" doc:"Who started the action: the name of the admin key over HTTP, the user of the operating system on a command line, the address for signin.failed, the process for keys.load."`
	Via       Via             `json:"via" enum:"api,cli,file" doc:"How the action was started. api: over HTTP; cli: on a command line; file: by a file that a server has loaded."`
	Action    string          `json:"action" doc:"The action, such as deadletters.retry."`
	Arguments json.RawMessage `json:"arguments" doc:"The arguments of the action, an object."`
	EndedAt   *time.Time      `json:"ended_at,omitempty" doc:"When the action ended; absent while the action runs, or if its process stopped before the end."`
	Result    json.RawMessage `json:"result,omitempty" doc:"The result of the action."`
	Error     *string         `json:"error,omitempty" doc:"The error; absent if there was none."`
}

// Execer runs statements that return nothing.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// TrailOf returns the database whose audit trail records the actions that concern no user: the
// first available database in the order of names. Each call of Exec chooses the database again.
func TrailOf(c *cluster.Cluster) Execer {
	byName := slices.SortedFunc(slices.Values(c.Databases()), func(a, b *cluster.Database) int { return cmp.Compare(a.Name, b.Name) })
	return trail(byName)
}

type trail []*cluster.Database

// Exec implements Execer.
func (t trail) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	i := max(0, slices.IndexFunc(t, func(s *cluster.Database) bool { return s.Err() == nil }))
	return t[i].Pool.Exec(ctx, sql, args...)
}

// endPatience limits the time for recording the end of an action. The end is recorded even if the
// context of the action was canceled.
const endPatience = 5 * time.Second

// Audited runs an action of an operator, the function do, and records the start and the result of
// the action in the audit trail. If the start cannot be recorded, the action does not run. The
// arguments and the result of the action are stored as JSON.
func Audited(ctx context.Context, db DB, operator Operator, action string, arguments any, do func(ctx context.Context) (result any, err error)) error {
	end, err := begin(ctx, db, operator, action, arguments)
	if err != nil {
		return err
	}
	result, did := do(ctx)
	return errors.Join(did, end(ctx, result, did))
}

// begin records the start of an action. The function end, which it returns, records the result of
// the action.
func begin(ctx context.Context, db DB, operator Operator, action string, arguments any) (end func(ctx context.Context, result any, failure error) error, err error) {
	encoded, err := storedJSON(arguments)
	if err != nil {
		return nil, fmt.Errorf("encode the arguments of %s: %w", action, err)
	}
	var id int64
	if err := db.QueryRow(ctx, statements.Get("begin an action"), storedText(operator.Name), operator.Via, action, encoded).Scan(&id); err != nil {
		return nil, fmt.Errorf("record %s in the audit trail; the action was not run: %w", action, err)
	}
	return func(ctx context.Context, result any, failure error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer cancel()
		var failed *string
		if failure != nil {
			failed = new(storedText(failure.Error()))
		}
		text, err := jsonText(result)
		if err == nil {
			_, err = db.Exec(ctx, statements.Get("end an action"), id, text, failed)
		}
		if err != nil {
			err = fmt.Errorf("record the end of %s in the audit trail; the action has run: %w", action, err)
		}
		return err
	}, nil
}

// jsonText returns v as JSON, or nil if v is nil.
func jsonText(v any) (*string, error) {
	if v == nil {
		return nil, nil //nolint:nilnil // null
	}
	text, err := storedJSON(v)
	return &text, err
}

// replacement is what Postgres stores instead of characters that it cannot store.
const replacement = "\ufffd"

// storedText returns s as Postgres can store it: in UTF-8 without NUL.
func storedText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, replacement), "\x00", replacement)
}

// jsonEscape matches an escape in JSON. A surrogate pair is one match.
var jsonEscape = regexp.MustCompile(`\\(?:u[dD][89abAB][[:xdigit:]]{2}\\u[dD][c-fC-F][[:xdigit:]]{2}|u[[:xdigit:]]{4}|[^u])`)

// unreadableEscape matches an escape that Postgres stores in a column of the type json, but can
// never read as text: NUL, or half of a surrogate pair.
var unreadableEscape = regexp.MustCompile(`^\\u(?:0000|[dD][89a-fA-F][[:xdigit:]]{2})$`)

// storedJSON returns v as JSON whose strings Postgres can read as text: it replaces invalid UTF-8,
// NUL and halves of surrogate pairs. It is used for all columns of the type json, since their
// strings may come from untrusted clients.
func storedJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return jsonEscape.ReplaceAllStringFunc(strings.ToValidUTF8(string(b), replacement), func(escape string) string {
		if unreadableEscape.MatchString(escape) {
			return `\ufffd`
		}
		return escape
	}), err
}

// Audit returns up to limit actions, newest first. The page begins before the action with the id
// `before`, or with the newest action if `before` is 0. A page may be shorter, since it also ends
// when it has deadletters.MaxPageBytes bytes. It is empty only if there are no more actions.
// Actions in databases that are unavailable are missing.
func (o *Operations) Audit(ctx context.Context, before int64, limit int) ([]Entry, error) {
	databases, err := o.cfg.Cluster.Available()
	if err != nil {
		return nil, err
	}
	first, err := cursorAt(ctx, databases, before, statements.Get("find when an action began"))
	if err != nil {
		return nil, err
	}
	return merged(ctx, databases, limit,
		func(a, b Entry) int { return compare(a.At, a.ID, b.At, b.ID) },
		func(e Entry) int { return len(e.Arguments) + len(e.Result) + lengthOf(e.Error) },
		func(ctx context.Context, s *cluster.Database, last *Entry) ([]Entry, error) {
			from := first
			if last != nil {
				from = cursor{&last.At, last.ID}
			}
			rows, _ := s.Pool.Query(ctx, statements.Get("list actions"), from.time, from.id, limit, deadletters.MaxPageBytes)
			return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Entry, error) {
				e := Entry{Shard: s.Name}
				err := row.Scan(&e.ID, &e.At, &e.Who, &e.Via, &e.Action, (*[]byte)(&e.Arguments), &e.EndedAt, (*[]byte)(&e.Result), &e.Error)
				e.At, e.EndedAt = e.At.UTC(), utc(e.EndedAt)
				return e, err
			})
		})
}
