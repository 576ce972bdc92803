// Package lag measures how far the projector is behind, and finds the open
// transaction that delays it.
package lag

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/sqlfile"
)

//go:embed lag.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Lag is how far the projector is behind in one partition.
type Lag struct {
	Partition int `json:"partition"`
	// Head is the position of the last event in the log, and Folded that of
	// the last folded event. If all events are archived, Head is Folded.
	Head   events.Position `json:"head"`
	Folded events.Position `json:"folded"`
	// Events is how many events lie between them, counted up to a limit.
	Events int64 `json:"events"`
	// Age is the time since the first of them was appended; 0 if there is
	// none.
	Age time.Duration `json:"age"`
	// Owner is the application_name of the session that owns the partition,
	// empty if there is none.
	Owner string `json:"owner"`
}

// Waiting describes the unfolded events of one partition.
type Waiting struct {
	// Folded is the position of the last folded event.
	Folded events.Position
	// Age is the time since the transaction of the next event began; 0 if no
	// event waits.
	Age time.Duration
}

// WaitingIn describes the unfolded events of each of the partitions, in their
// order. It takes two index lookups per partition, whatever the backlog.
func WaitingIn(ctx context.Context, q events.Querier, partitions []int) ([]Waiting, error) {
	positions, err := PositionsOf(ctx, q, partitions)
	if err != nil {
		return nil, fmt.Errorf("measure the lag: %w", err)
	}
	var sql strings.Builder
	var args []any
	for i, p := range partitions {
		if i > 0 {
			sql.WriteString("\nUNION ALL\n")
		}
		fmt.Fprintf(&sql, `SELECT %d, (SELECT extract(epoch FROM clock_timestamp() - created_at)::double precision FROM badged.%s
    WHERE %s ORDER BY transaction_id, "offset" LIMIT 1)`, i, events.Topic(p), IsBehind(len(args)+1))
		args = append(args, positions[p].TransactionID, positions[p].Offset)
	}
	rows, _ := q.Query(ctx, sql.String(), args...)
	waiting := make([]Waiting, len(partitions))
	var i int
	var age *float64
	if _, err := pgx.ForEachRow(rows, []any{&i, &age}, func() error {
		waiting[i].Folded = positions[partitions[i]]
		if age != nil {
			// Stay above 0 even if the clock was set back.
			waiting[i].Age = max(time.Microsecond, time.Duration(*age*float64(time.Second)))
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("measure the lag: %w", err)
	}
	return waiting, nil
}

// Behind returns the partitions with events that can be folded now.
func Behind(ctx context.Context, q events.Querier, partitions []int) ([]int, error) {
	positions, err := PositionsOf(ctx, q, partitions)
	if err != nil {
		return nil, fmt.Errorf("find partitions that are behind: %w", err)
	}
	var sql strings.Builder
	var args []any
	for i, p := range partitions {
		if i > 0 {
			sql.WriteString("\nUNION ALL\n")
		}
		fmt.Fprintf(&sql, `SELECT %d WHERE EXISTS (
    SELECT FROM badged.%s
    WHERE %s AND transaction_id < pg_snapshot_xmin(pg_current_snapshot()))`, p, events.Topic(p), IsBehind(len(args)+1))
		args = append(args, positions[p].TransactionID, positions[p].Offset)
	}
	rows, _ := q.Query(ctx, sql.String(), args...)
	behind, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("find partitions that are behind: %w", err)
	}
	return behind, nil
}

// PositionsOf returns the positions of the projector in partitions. They need
// a query of their own: only with positions as parameters can Postgres skip
// ranges of a log without opening them all.
func PositionsOf(ctx context.Context, q events.Querier, partitions []int) (map[int]events.Position, error) {
	var sql strings.Builder
	for i, p := range partitions {
		if i > 0 {
			sql.WriteString("\nUNION ALL\n")
		}
		fmt.Fprintf(&sql, `SELECT %d, last_processed_transaction_id::text::bigint, offset_acked
FROM badged.%s_offsets WHERE consumer_group = $1`, p, events.Topic(p))
	}
	rows, _ := q.Query(ctx, sql.String(), events.ProjectorGroup)
	positions := make(map[int]events.Position, len(partitions))
	var partition int
	var at events.Position
	if _, err := pgx.ForEachRow(rows, []any{&partition, &at.TransactionID, &at.Offset}, func() error {
		positions[partition] = at
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return positions, nil
}

// IsBehind returns the condition that an event comes after a position whose
// transaction is the parameter of that number and whose offset is the next
// one.
func IsBehind(argument int) string {
	return fmt.Sprintf(`(transaction_id, "offset") > ($%[1]d::bigint::text::xid8, $%[2]d::bigint) AND transaction_id >= $%[1]d::bigint::text::xid8`, argument, argument+1)
}

// Measure returns how far the projector is behind in each of the partitions,
// counting up to limit events in each.
func Measure(ctx context.Context, q events.Querier, partitions []int, limit int) ([]Lag, error) {
	lags := make([]Lag, 0, len(partitions))
	for _, p := range partitions {
		l := Lag{Partition: p}
		var age float64
		sql := strings.ReplaceAll(statements.Of(p, "measure a partition"), "MOST", strconv.Itoa(limit))
		err := q.QueryRow(ctx, sql, events.ProjectorGroup, pgsession.LockClass, p).Scan(
			&l.Folded.TransactionID, &l.Folded.Offset, &l.Head.TransactionID, &l.Head.Offset, &l.Events, &age, &l.Owner)
		if err != nil {
			return nil, fmt.Errorf("measure the lag of partition %d: %w", p, err)
		}
		l.Age = time.Duration(age * float64(time.Second))
		lags = append(lags, l)
	}
	return lags, nil
}
