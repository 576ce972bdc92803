package migrations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
)

// State compares the migrations of a database with the migrations that this program has.
type State struct {
	// Version is the version of the newest migration that was applied to the database, or 0 if no
	// migration was applied. The migration may belong to a newer release than this program.
	Version int64
	// Wanted is the version of the newest migration of this program.
	Wanted int64
	// Pending is the number of this program's migrations that were not applied yet. All is the
	// number of this program's migrations.
	Pending, All int
}

// Lacks describes the pending migrations, "" if there are none.
func (s State) Lacks() string {
	switch {
	case s.Pending == 0:
		return ""
	case s.Version == 0:
		return fmt.Sprintf("%d of %d migrations are pending", s.Pending, s.All)
	}
	return fmt.Sprintf("%d of %d migrations are pending: the database is at version %d, and this program needs %d", s.Pending, s.All, s.Version, s.Wanted)
}

// StateOf reads which migrations were applied to a database. In a database without the schema, all
// migrations are pending.
func StateOf(ctx context.Context, q interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
},
) (State, error) {
	wanted, err := versions()
	if err != nil {
		return State{}, err
	}
	rows, _ := q.Query(ctx, `SELECT version_id FROM `+versionsTable+` WHERE is_applied`)
	applied, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	const undefinedTable, invalidSchemaName = "42P01", "3F000"
	if pg, ok := errors.AsType[*pgconn.PgError](err); err != nil && (!ok || pg.Code != undefinedTable && pg.Code != invalidSchemaName) {
		return State{}, fmt.Errorf("read which migrations are applied: %w", err)
	}
	s := State{Wanted: slices.Max(wanted), All: len(wanted)}
	for _, v := range wanted {
		if !slices.Contains(applied, v) {
			s.Pending++
		}
	}
	if len(applied) > 0 {
		s.Version = slices.Max(applied)
	}
	return s, nil
}

// Uneven compares the versions of several databases. The keys of `states` are the names of the
// databases. If the versions differ, Uneven returns a message with the version of each database,
// otherwise "".
func Uneven(states map[string]State) string {
	var all []string
	differ := false
	for _, name := range slices.Sorted(maps.Keys(states)) {
		all = append(all, fmt.Sprintf("%s is at version %d", name, states[name].Version))
		for _, other := range states {
			differ = differ || other.Version != states[name].Version
		}
	}
	if !differ {
		return ""
	}
	return "the databases are not migrated alike: " + strings.Join(all, ", ") + "; run `badged migrate up` of the newest release in use"
}

// versions returns the versions of the migrations of this program.
func versions() ([]int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("list the migrations: %w", err)
	}
	all := make([]int64, len(names))
	for i, name := range names {
		if all[i], err = goose.NumericComponent(name); err != nil {
			return nil, fmt.Errorf("list the migrations: %w", err)
		}
	}
	return all, nil
}
