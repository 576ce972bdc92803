package events

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/log/eventlog"
)

// Rows are events of one partition, encoded as rows of the log. badged appends them with
// [Log.AppendRows], or with QueueAt in a transaction that also does other work. ADR 58 says why a
// row has several events.
type Rows struct {
	Partition int
	// Events are the events, each with only the users of the partition.
	Events  []Event
	columns *eventbatch.Columns
}

// QueueAt adds to batch a statement that appends the rows to the log. The rows get appendedAt as
// the time of the append.
func (r *Rows) QueueAt(batch *pgx.Batch, appendedAt time.Time) { r.queue(batch, &appendedAt) }

func (r *Rows) queue(batch *pgx.Batch, appendedAt *time.Time) *pgx.QueuedQuery {
	sql, args := r.columns.Insert(Topic(r.Partition), appendedAt)
	return batch.Queue(sql, args...)
}

// Rows validates and encodes events, so that a transaction of badged can append them and also do
// other work. It returns one Rows for each partition of the events, in ascending order.
func (l *Log) Rows(ctx context.Context, evs []Event) ([]Rows, error) { return l.encode(ctx, evs, true) }

// encode encodes events, and accepts events that only badged may write. If keep is true, the
// returned rows also have their Events.
func (l *Log) encode(ctx context.Context, evs []Event, keep bool) ([]Rows, error) {
	enc := encoder{layout: l.Layout(), held: func() (eventlog.Set, error) { return l.toRooms(ctx) }, now: l.now(), internal: true, keep: keep}
	return enc.rows(evs)
}

// encoder encodes events as rows for each partition.
type encoder struct {
	layout *Layout
	// held returns the partitions that get messages to rooms.
	held func() (eventlog.Set, error)
	// now is the time that events without a time get.
	now time.Time
	// internal is true if the encoder accepts types and attributes that only badged may write. keep
	// is true if the encoder must set Events in the returned rows.
	internal, keep bool

	toRooms eventlog.Set
	// expect is an estimate of the number of events per partition, for the allocation of slices.
	expect      int
	byPartition []*Rows
	payload     []byte // buffer, reused for each row
}

// rows validates evs and encodes them as rows, by partition in ascending order.
func (enc *encoder) rows(evs []Event) ([]Rows, error) {
	toRooms, err := checkAll(evs, enc.internal)
	if err != nil {
		return nil, err
	}
	enc.expect, enc.byPartition = len(evs)/enc.layout.Len()+1, make([]*Rows, enc.layout.numbers)
	if toRooms {
		if enc.toRooms, err = enc.held(); err != nil {
			return nil, err
		}
	}
	var e Event
	for i := range evs {
		e = evs[i] // a copy, so that the caller's event does not change
		if e.Time.IsZero() {
			e.Time = enc.now
		}
		if err := enc.encode(&e); err != nil {
			return nil, fmt.Errorf("encode event %d: %w", i, err)
		}
	}
	var all []Rows
	for _, rows := range enc.byPartition {
		if rows == nil {
			continue
		}
		if rows.columns, err = rows.columns.Packed(); err != nil {
			return nil, err
		}
		all = append(all, *rows)
	}
	return all, nil
}

// encode adds e to each partition that has users of e. In each partition, the event has only the
// users of that partition. So a message to a large group becomes one event per partition.
func (enc *encoder) encode(e *Event) error {
	key := e.Key()
	metadata, err := e.metadata()
	if err != nil {
		return err
	}
	switch {
	case len(e.Data.UserIDs) == 0:
		return enc.encodeForRoom(e, key, metadata)
	case len(e.Data.UserIDs) == 1: // by far the most frequent
		return enc.add(enc.layout.PartitionOf(e.Data.UserIDs[0]), e, &e.Data, key, metadata)
	}
	users := enc.layout.groups(e.Data.UserIDs)
	mentioned := enc.layout.groups(e.Data.MentionedUserIDs)
	for p := range users {
		if len(users[p]) == 0 {
			continue
		}
		data := e.Data
		data.UserIDs, data.MentionedUserIDs = users[p], mentioned[p]
		if err := enc.add(p, e, &data, key, metadata); err != nil {
			return err
		}
	}
	return nil
}

// encodeForRoom adds e to every partition of toRooms, with only the mentioned users of that
// partition.
func (enc *encoder) encodeForRoom(e *Event, key uuid.UUID, metadata string) error {
	data := e.Data
	var mentioned [][]string
	if len(data.MentionedUserIDs) > 0 {
		mentioned = enc.layout.groups(data.MentionedUserIDs)
	}
	for p := range enc.toRooms.All() {
		if p >= enc.layout.numbers {
			return fmt.Errorf("%w: partition %d is not in the layout", ErrNotHeld, p)
		}
		if mentioned != nil {
			data.MentionedUserIDs = mentioned[p]
		}
		if err := enc.add(p, e, &data, key, metadata); err != nil {
			return err
		}
	}
	return nil
}

// add adds e to a partition, with data instead of e.Data.
func (enc *encoder) add(partition int, e *Event, data *Data, key uuid.UUID, metadata string) (err error) {
	if enc.payload, err = appendEvent(enc.payload[:0], e, data); err != nil {
		return err
	}
	rows := enc.byPartition[partition]
	if rows == nil {
		rows = &Rows{Partition: partition, columns: eventbatch.NewColumns(enc.expect + enc.expect/4)}
		enc.byPartition[partition] = rows
	}
	rows.columns.Add(key, bytes.Clone(enc.payload), metadata)
	if e.CheckReserved() != nil {
		rows.columns.MarkOwn()
	}
	if enc.keep {
		one := *e
		one.Data = *data
		one.Data.Until = data.Until.UTC() // as in the log
		rows.Events = append(rows.Events, one)
	}
	return nil
}
