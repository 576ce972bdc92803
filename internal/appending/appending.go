// Package appending appends events to a log as badged does itself: also what only badged
// may write, which [events.Log.Append] refuses, and with statements beside them.
//
// It does not know events beyond their rows. ADR 40 says what only badged may write.
package appending

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
)

// To returns what appends to a log as [events.Log.Append] does, but accepts what
// [events.Event.CheckReserved] refuses.
func To(l *events.Log) events.Append {
	return func(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
		if len(evs) == 0 {
			return events.Receipt{}, nil
		}
		return With(ctx, l, nil, evs...)
	}
}

// With is like [To], but the same transaction first runs the statements that queue adds,
// unless it is nil. They run also without events. It may be called several times, each
// time for another attempt.
func With(ctx context.Context, l *events.Log, queue func(*pgx.Batch), evs ...events.Event) (events.Receipt, error) {
	token, rows, err := (*eventlog.Log[events.Event])(l).Append(ctx, queue, evs)
	if err != nil {
		return events.Receipt{}, err
	}
	return events.Receipt{TransactionID: token.TransactionID(), Timeline: token.Timeline(), Partitions: eventlog.Partitions(rows)}, nil
}
