package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
)

// A message to a room goes to every partition, whether the room has members there or not:
// each has the whole room, and who joins where makes no difference. Of several databases,
// each gets the message for the partitions that it holds.

// heldTextSQL returns the partitions that the database holds: as JSON, since database/sql
// cannot scan arrays.
const heldTextSQL = `SELECT coalesce(json_agg(partition_id), '[]')::text FROM badged.partitions`

// ReadHeld is [Held] for a transaction of any driver.
func ReadHeld(ctx context.Context, queryRow QueryRow) (held Set, err error) {
	var text string
	if err := queryRow(ctx, heldTextSQL, &text); err != nil {
		return held, NotMigrated(err)
	}
	var partitions []int
	if err := json.Unmarshal([]byte(text), &partitions); err != nil {
		return held, fmt.Errorf("read the partitions: %w", err)
	}
	for _, p := range partitions {
		held.Add(p)
	}
	return held, nil
}

// ToRooms returns the partitions that get the messages to rooms of an append: those that it
// expects the database to hold, if it does. They refuse the messages if the database does not
// hold them.
func (l *Log[E]) ToRooms(ctx context.Context) (held Set, err error) {
	switch e := ExpectedBy(ctx); {
	case e != nil:
		return e.partitions, nil
	case l.shared.Load():
		return ReadHeld(ctx, l.queryRow)
	}
	return l.Layout().Set(), nil
}
