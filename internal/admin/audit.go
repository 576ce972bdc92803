// Package admin implements what operators do and see through the command line
// and the admin API: the audit trail, jobs, and statistics of all processes.
//
// It does not know shards: package operators does. ADR 27 has the reasons.
package admin

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/user"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/sqlfile"
	"github.com/badged/badged/projector/deadletters"
)

//go:embed admin.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// DB runs statements: a pgx connection, pool or transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Via is the interface that an operator used.
type Via string

// The interfaces.
const (
	ViaAPI  Via = "api"  // the name is that of an admin key
	ViaCLI  Via = "cli"  // the name is that of a user of the operating system
	ViaFile Via = "file" // the name is that of the process that loaded the file, or of the flag that names it
)

// Operator identifies who acts.
type Operator struct {
	Name string
	Via  Via
}

// OSUser returns the operating system's user of this process.
func OSUser() Operator {
	u, err := user.Current()
	if err != nil {
		return Operator{"unknown", ViaCLI}
	}
	return Operator{u.Username, ViaCLI}
}

// Entry is an action in the audit trail.
type Entry struct {
	ID        int64           `json:"id" doc:"The id of the entry."`
	Shard     string          `json:"shard,omitempty" doc:"The shard that has it; absent without shards."`
	At        time.Time       `json:"at" doc:"When the action began."`
	Who       string          `json:"who" doc:"The name of the admin key, or the user of the operating system; of signin.failed, the address, and of keys.load, the process."`
	Via       Via             `json:"via" enum:"api,cli,file" doc:"How it was started: over HTTP, on a command line, or by a file that a server has loaded."`
	Action    string          `json:"action" doc:"The action, such as deadletters.retry."`
	Arguments json.RawMessage `json:"arguments" doc:"Its arguments, an object."`
	EndedAt   *time.Time      `json:"ended_at,omitempty" doc:"When it ended; absent while it runs, and if its process ended first."`
	Result    json.RawMessage `json:"result,omitempty" doc:"Its result."`
	Error     *string         `json:"error,omitempty" doc:"Why it failed."`
}

// endPatience bounds recording the end of an action that was interrupted.
const endPatience = 5 * time.Second

// Audited runs an action of an operator and records it in the audit trail: its
// start before it runs, so that no action goes unrecorded, and its result
// afterwards. arguments and the result of do are stored as JSON.
func Audited(ctx context.Context, db DB, by Operator, action string, arguments any, do func(ctx context.Context) (result any, err error)) error {
	end, err := begin(ctx, db, by, action, arguments)
	if err != nil {
		return err
	}
	result, did := do(ctx)
	return errors.Join(did, end(ctx, result, did))
}

// begin records the start of an action. end records its result.
func begin(ctx context.Context, db DB, by Operator, action string, arguments any) (end func(ctx context.Context, result any, failure error) error, err error) {
	encoded, err := json.Marshal(arguments)
	if err != nil {
		return nil, fmt.Errorf("encode the arguments of %s: %w", action, err)
	}
	var id int64
	if err := db.QueryRow(ctx, statements.Get("begin an action"), by.Name, by.Via, action, string(encoded)).Scan(&id); err != nil {
		return nil, fmt.Errorf("record %s in the audit trail; the action was not run: %w", action, err)
	}
	return func(ctx context.Context, result any, failure error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer cancel()
		var failed *string
		if failure != nil {
			s := failure.Error()
			failed = &s
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
	b, err := json.Marshal(v)
	text := string(b)
	return &text, err
}

// Moment is a place in the lists of one or several databases, newest first: before an action
// or job that began at a time, and of those that began at the same time has this id. Without a
// time it is before the id alone; the zero value is the beginning.
type Moment struct {
	At *time.Time
	ID int64
}

// Audit returns up to limit actions before a moment, newest first. It returns fewer if they
// exceed deadletters.MaxPageBytes together, but none only if there are no more.
func Audit(ctx context.Context, db DB, from Moment, limit int) ([]Entry, error) {
	rows, _ := db.Query(ctx, statements.Get("list actions"), from.At, from.ID, limit, deadletters.MaxPageBytes)
	return collectEntries(rows)
}

// WhenAudited returns when an action began, nil if there is none of that id.
func WhenAudited(ctx context.Context, db DB, id int64) (*time.Time, error) {
	var at time.Time
	err := db.QueryRow(ctx, statements.Get("find when an action began"), id).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // none
	}
	if err != nil {
		return nil, fmt.Errorf("read the audit trail: %w", err)
	}
	return &at, nil
}

func collectEntries(rows pgx.Rows) ([]Entry, error) {
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Entry, err error) {
		err = row.Scan(&e.ID, &e.At, &e.Who, &e.Via, &e.Action, (*[]byte)(&e.Arguments), &e.EndedAt, (*[]byte)(&e.Result), &e.Error)
		e.At = e.At.UTC()
		if e.EndedAt != nil {
			*e.EndedAt = e.EndedAt.UTC()
		}
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the audit trail: %w", err)
	}
	return entries, nil
}
