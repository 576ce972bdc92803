package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

// errFenced is returned by a batch that found the position of its partition, or
// its generation of keys, moved by another writer. Nothing of the batch was
// kept.
var errFenced = errors.New("the position was moved by another projector")

// batch is a run of records of one partition on its way into the tables.
type batch struct {
	from, to events.Position
	// generation is the one that takes the keys; the batch begins it where
	// begins is set.
	generation int
	begins     bool
	items      []item
	dead       []deadLetter
	// oldest is when the first record was appended.
	oldest time.Time
}

// item is an event that can be folded.
type item struct {
	event events.Event
	key   uuid.UUID
}

// deadLetter is a record that cannot be folded, and why.
type deadLetter struct {
	record events.Record
	reason string
}

// newBatch decodes records, which follow from in a log of so many partitions.
func newBatch(from events.Position, records []events.Record, partition, partitions int) *batch {
	b := &batch{
		from:   from,
		to:     records[len(records)-1].Position,
		items:  make([]item, 0, len(records)),
		oldest: records[0].AppendedAt,
	}
	for i := range records {
		it, err := newItem(&records[i], partition, partitions)
		if err != nil {
			b.dead = append(b.dead, deadLetter{record: records[i], reason: err.Error()})
			continue
		}
		b.items = append(b.items, it)
	}
	return b
}

// newItem decodes a record of a partition. An error is why it cannot be folded.
func newItem(r *events.Record, partition, partitions int) (item, error) {
	e, err := events.Decode(r.Payload)
	if err != nil {
		return item{}, err
	}
	if err := belongs(&e, partition, partitions); err != nil {
		return item{}, err
	}
	e.AppendedAt = r.AppendedAt
	return item{event: e, key: e.Key()}, nil
}

// belongs returns an error where e names a user of another partition: folding
// it here would give that user's rows a second writer.
func belongs(e *events.Event, partition, partitions int) error {
	for _, u := range e.Data.UserIDs {
		if p := events.PartitionOf(u, partitions); p != partition {
			return fmt.Errorf("user %q belongs to partition %d, not to %d", u, p, partition)
		}
	}
	return nil
}

// result is what a committed batch did.
type result struct {
	updates []pubsub.Update
	folded  int
	// duplicates are the events whose key was remembered.
	duplicates int
}

// commit folds b into the tables in one transaction: the keys, the
// conversation and user rows, the dead letters and the position, whole or not
// at all. It takes two round trips, and returns errFenced where another writer
// has moved the position. After an error conn may be inside a transaction: it
// must be closed, which is what releasing it to its pool does.
func (b *batch) commit(ctx context.Context, conn *pgx.Conn, t *tables) (result, error) {
	users := b.users()
	state, err := b.load(ctx, conn, t, users)
	if err != nil {
		return result{}, err
	}
	base := make(map[string]int64, len(users))
	for id, u := range users {
		base[id] = u.version
	}
	r := result{}
	for i := range b.items {
		it := &b.items[i]
		if _, ok := state.fresh[it.key]; !ok {
			r.duplicates++
			continue
		}
		delete(state.fresh, it.key) // a second one in this batch is a duplicate
		r.folded++
		fold(&it.event, users)
	}

	touched := sorted(users)
	var writes pgx.Batch
	t.queueWrites(&writes, touched, base)
	for _, d := range b.dead {
		writes.Queue(buryDeadLetterSQL, t.partition, d.record.Position.TransactionID, d.record.Position.Offset,
			d.record.UUID, textOrNull(d.record.Payload), d.reason)
	}
	writes.Queue(`COMMIT`)
	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {
		return result{}, fmt.Errorf("write: %w", err)
	}
	r.updates = updatesOf(touched, base, t.partition, state.epoch)
	return r, nil
}

// fold applies e to each of its users.
func fold(e *events.Event, users map[string]*user) {
	var mentioned map[string]struct{}
	if len(e.Data.MentionedUserIDs) > 0 {
		mentioned = make(map[string]struct{}, len(e.Data.MentionedUserIDs))
		for _, id := range e.Data.MentionedUserIDs {
			mentioned[id] = struct{}{}
		}
	}
	for _, id := range e.Data.UserIDs {
		_, m := mentioned[id]
		users[id].apply(e, m)
	}
}

// users returns the users that b names, empty.
func (b *batch) users() map[string]*user {
	users := make(map[string]*user, len(b.items))
	for i := range b.items {
		for _, id := range b.items[i].event.Data.UserIDs {
			if _, ok := users[id]; !ok {
				users[id] = newUser(id)
			}
		}
	}
	return users
}

// loaded is what the tables said at the start of a batch, besides the rows.
type loaded struct {
	epoch string
	// fresh are the keys that are not remembered from before.
	fresh map[uuid.UUID]struct{}
}

// load begins the transaction, moves the position, remembers the keys and fills
// users from their rows, all in one round trip. Moving first makes a second
// writer wait here until the first is done, and then find itself fenced off.
func (b *batch) load(ctx context.Context, conn *pgx.Conn, t *tables, users map[string]*user) (loaded, error) {
	state := loaded{fresh: make(map[uuid.UUID]struct{}, len(b.items))}
	before := b.generation
	if b.begins {
		before--
	}
	var reads pgx.Batch
	reads.Queue(`BEGIN`)
	reads.Queue(t.moveSQL, ConsumerGroup, b.from.TransactionID, b.from.Offset, b.to.TransactionID, b.to.Offset).
		QueryRow(func(row pgx.Row) error {
			var present int
			err := row.Scan(&state.epoch, &present)
			if errors.Is(err, pgx.ErrNoRows) || err == nil && present != before {
				return errFenced
			}
			return err
		})
	if b.begins {
		reads.Queue(beginGenerationSQL, t.partition, b.generation, b.from.TransactionID, b.from.Offset)
	}
	if len(b.items) > 0 {
		n := b.needs()
		reads.Queue(rememberKeysSQL(t.partition, b.generation), n.keys).Query(func(rows pgx.Rows) error { return scanKeys(rows, state.fresh) })
		reads.Queue(t.loadUsersSQL, n.users).Query(func(rows pgx.Rows) error { return scanUsers(rows, users) })
		reads.Queue(t.loadConversationsSQL, n.pairUsers, n.pairConversations).
			Query(func(rows pgx.Rows) error { return scanConversations(rows, users) })
		if len(n.readAll) > 0 {
			reads.Queue(t.loadUnreadSQL, n.readAll).
				Query(func(rows pgx.Rows) error { return scanConversations(rows, users) })
		}
	}
	if err := conn.SendBatch(ctx, &reads).Close(); err != nil {
		return loaded{}, fmt.Errorf("load: %w", err)
	}
	return state, nil
}

// needs are the rows that folding a batch may touch.
type needs struct {
	keys                         [][16]byte
	users                        []string
	pairUsers, pairConversations []string
	readAll                      []string
}

func (b *batch) needs() needs {
	type pair struct{ user, conversation string }
	var n needs
	keys := make(map[uuid.UUID]struct{}, len(b.items))
	users := make(map[string]struct{}, len(b.items))
	pairs := make(map[pair]struct{}, len(b.items))
	readAll := map[string]struct{}{}
	for i := range b.items {
		it := &b.items[i]
		if _, ok := keys[it.key]; !ok {
			keys[it.key] = struct{}{}
			n.keys = append(n.keys, it.key)
		}
		for _, id := range it.event.Data.UserIDs {
			if _, ok := users[id]; !ok {
				users[id] = struct{}{}
				n.users = append(n.users, id)
			}
			if it.event.Type == events.UserReadAll {
				if _, ok := readAll[id]; !ok {
					readAll[id] = struct{}{}
					n.readAll = append(n.readAll, id)
				}
				continue
			}
			p := pair{id, it.event.Data.ConversationID}
			if _, ok := pairs[p]; !ok {
				pairs[p] = struct{}{}
				n.pairUsers = append(n.pairUsers, p.user)
				n.pairConversations = append(n.pairConversations, p.conversation)
			}
		}
	}
	return n
}

// textOrNull keeps a payload that is null null.
func textOrNull(payload []byte) *string {
	if payload == nil {
		return nil
	}
	s := string(payload)
	return &s
}
