// Package lag measures how far the projector is behind the log, by querying the tables. It
// does not know the loop that folds.
package lag

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed lag.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// Lag is how far the projector is behind in one partition.
type Lag struct {
	Partition int `json:"partition"`
	// Head is the position of the last event in the log, and Folded is the position of the
	// last folded event. If the log has no rows because all were archived, Head equals Folded.
	Head   events.Position `json:"head"`
	Folded events.Position `json:"folded"`
	// Events is the number of events after Folded. Measure counts the events of a limited
	// number of rows; if there are more rows, Events is too low.
	Events int64 `json:"events"`
	// Age is the time since the oldest event after Folded was appended; 0 if there is none.
	Age time.Duration `json:"age"`
	// Owner is the application_name of the session that owns the partition; empty if no
	// session owns it.
	Owner string `json:"owner"`
	// Notifier is the position up to which the notifier has read the partition. It is nil if
	// the notifier has read up to Folded, or if there are no devices.
	Notifier *events.Position `json:"notifier,omitempty"`
}

// Waiting describes the unfolded events of one partition.
type Waiting struct {
	// Folded is the position of the last folded event.
	Folded events.Position
	// Age is the time since the start of the transaction that appended the next event after Folded;
	// 0 if every event is folded.
	Age time.Duration
}

// WaitingIn describes the unfolded events of each partition. It does two index look-ups per
// partition, so a large backlog does not make it slower.
func WaitingIn(ctx context.Context, q events.Querier, partitions []int) (map[int]Waiting, error) {
	cursors, err := logread.LoadAll(ctx, q, partitions)
	if err != nil {
		return nil, fmt.Errorf("measure the lag: %w", err)
	}
	each := make([]string, len(partitions))
	var args []any
	for i, p := range partitions {
		each[i] = fmt.Sprintf(`SELECT %d, (SELECT extract(epoch FROM clock_timestamp() - created_at)::double precision FROM badged.%s
    WHERE %s ORDER BY transaction_id, "offset" LIMIT 1)`, i, events.Topic(p), logread.After(len(args)+1))
		args = append(args, cursors[i].TransactionID, cursors[i].Offset)
	}
	waiting := make(map[int]Waiting, len(partitions))
	var i int
	var age *float64
	return waiting, query.Each(ctx, q, "measure the lag", strings.Join(each, "\nUNION ALL\n"), args, []any{&i, &age}, func() error {
		w := Waiting{Folded: cursors[i].Position}
		if age != nil {
			// Keep Age above 0, even if the clock was set back.
			w.Age = max(time.Microsecond, time.Duration(*age*float64(time.Second)))
		}
		waiting[partitions[i]] = w
		return nil
	})
}

// Behind returns the partitions that have unfolded events which can be folded now, since their
// transactions have committed.
func Behind(ctx context.Context, q events.Querier, partitions []int) ([]int, error) {
	cursors, err := logread.LoadAll(ctx, q, partitions)
	if err != nil {
		return nil, fmt.Errorf("find partitions that are behind: %w", err)
	}
	each := make([]string, len(partitions))
	var args []any
	for i, p := range partitions {
		each[i] = fmt.Sprintf(`SELECT %d WHERE EXISTS (SELECT FROM badged.%s WHERE %s)`, p, events.Topic(p), logread.After(len(args)+1))
		if len(cursors[i].Pending) == 0 {
			args = append(args, cursors[i].TransactionID, cursors[i].Offset)
			continue
		}
		each[i] += fmt.Sprintf(` OR EXISTS (SELECT FROM badged.%s WHERE %s)`, events.Topic(p), logread.Late(len(args)+1))
		args = append(args, cursors[i].Args()...)
	}
	return query.All(ctx, q, "find partitions that are behind", pgx.RowTo[int], strings.Join(each, "\nUNION ALL\n"), args...)
}

// NotFolded returns the total number of unfolded events in the given partitions.
func NotFolded(ctx context.Context, q events.Querier, partitions []int) (n int64, err error) {
	lags, err := Measure(ctx, q, partitions, math.MaxInt32)
	for _, l := range lags {
		n += l.Events
	}
	return n, err
}

// Measure returns how far the projector is behind in each partition. It counts the events of at
// most `limit` rows per partition. It omits partitions that the database no longer has.
func Measure(ctx context.Context, q events.Querier, partitions []int, limit int) ([]Lag, error) {
	lags := make([]Lag, 0, len(partitions))
	for _, p := range partitions {
		l := Lag{Partition: p}
		var age float64
		sql := strings.ReplaceAll(statements.Of(p, "measure a partition"), "MOST", strconv.Itoa(limit))
		var told, toldOffset *int64
		err := q.QueryRow(ctx, sql, events.ProjectorGroup, pgsession.LockClass, p, events.NotifierGroup).Scan(
			&l.Folded.TransactionID, &l.Folded.Offset, &l.Head.TransactionID, &l.Head.Offset, &l.Events, &age, &l.Owner, &told, &toldOffset)
		if errors.Is(err, pgx.ErrNoRows) && eventlog.IsGone(ctx, q, p) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("measure the lag of partition %d: %w", p, err)
		}
		if told != nil {
			l.Notifier = &events.Position{TransactionID: *told, Offset: *toldOffset}
		}
		l.Age = time.Duration(age * float64(time.Second))
		lags = append(lags, l)
	}
	return lags, nil
}
