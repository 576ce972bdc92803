package events

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/eventlog"
)

// encodeOwn encodes events for appends of badged itself, in transactions of their own.
func encodeOwn(ctx context.Context, l *eventlog.Log[Event], evs []Event) ([]eventlog.Rows, error) {
	return encodeRows(l.Layout(), func() (eventlog.Set, error) { return l.ToRooms(ctx) }, l.Now(), evs, true)
}

// encodeRows validates evs and encodes them as rows by partition, in ascending order. held
// returns the partitions that get messages to rooms, and now is the time of events without
// one. Unless own is set, it rejects what only badged may write.
// ADR 58 says why a row holds several events.
func encodeRows(l *eventlog.Layout, held func() (eventlog.Set, error), now time.Time, evs []Event, own bool) ([]eventlog.Rows, error) {
	toRooms, err := checkAll(evs, own)
	if err != nil {
		return nil, err
	}
	enc := encoder{layout: l, expect: len(evs)/l.Len() + 1, byPartition: make([]*eventbatch.Columns, l.Numbers())}
	if toRooms {
		if enc.held, err = held(); err != nil {
			return nil, err
		}
	}
	var e Event
	for i := range evs {
		e = evs[i] // a copy: the caller's keeps its zero time
		if e.Time.IsZero() {
			e.Time = now
		}
		if err := enc.encode(&e); err != nil {
			return nil, fmt.Errorf("encode event %d: %w", i, err)
		}
	}
	var rows []eventlog.Rows
	for p, events := range enc.byPartition {
		if events == nil {
			continue
		}
		packed, err := events.Packed()
		if err != nil {
			return nil, err
		}
		rows = append(rows, eventlog.Rows{Partition: p, Events: events, Packed: packed})
	}
	return rows, nil
}

// encoder encodes events for each partition.
type encoder struct {
	layout *eventlog.Layout
	// held are the partitions that get messages to rooms.
	held eventlog.Set
	// expect is about how many events a partition will have.
	expect      int
	byPartition []*eventbatch.Columns
	payload     []byte // buffer, reused for each row
}

// encode adds e to each partition of its users, with only the users of that
// partition: a message to a large group is one event per partition.
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
	users := enc.layout.Groups(e.Data.UserIDs)
	mentioned := enc.layout.Groups(e.Data.MentionedUserIDs)
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

// encodeForRoom adds e to every partition, with only the mentioned users of each.
func (enc *encoder) encodeForRoom(e *Event, key uuid.UUID, metadata string) error {
	data := e.Data
	var mentioned [][]string
	if len(data.MentionedUserIDs) > 0 {
		mentioned = enc.layout.Groups(data.MentionedUserIDs)
	}
	for p := range enc.held.All() {
		if p >= enc.layout.Numbers() {
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

// add adds e with data in place of its own to a partition.
func (enc *encoder) add(partition int, e *Event, data *Data, key uuid.UUID, metadata string) (err error) {
	if enc.payload, err = appendEvent(enc.payload[:0], e, data); err != nil {
		return err
	}
	if enc.byPartition[partition] == nil {
		enc.byPartition[partition] = eventbatch.NewColumns(enc.expect + enc.expect/4)
	}
	enc.byPartition[partition].Add(key, string(enc.payload), metadata)
	if e.CheckReserved() != nil {
		enc.byPartition[partition].MarkOwn()
	}
	return nil
}
