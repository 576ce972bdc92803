package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

// Errors of a batch whose owner does not know any more how its partition
// stands, or less of it than it thought. Nothing of the batch was kept.
var (
	// errFenced: another writer has moved the position or the generation of
	// keys.
	errFenced = errors.New("the position was moved by another projector")
	// errRevised: somebody has changed rows beside the projector.
	errRevised = errors.New("rows were changed beside the projector")
	// errRepeated: an event that was taken to be new has come before.
	errRepeated = errors.New("the key of an event that was taken to be new is remembered")
)

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
	// doubtful is set where the event may have come before.
	doubtful bool
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

// standing is what the owner of a partition goes by, beside the position.
type standing struct {
	epoch string
	// revision counts how often rows were changed beside the projector.
	revision int64
	// generation is the present one of the keys.
	generation int
}

// commit folds b into the tables in one transaction: the keys, the
// conversation and user rows, the dead letters and the position, whole or not
// at all. It takes two round trips, and returns errFenced or errRevised where
// the partition does not stand as known says, and errRepeated where an event
// came before that is not marked doubtful. Rows that c remembers are not loaded.
// Updates are made for those users only of whom heard, asked after the commit,
// says that anybody would hear. After an error c must be cleared, and conn,
// which may be inside a transaction, closed: which is what releasing it to its
// pool does.
func (b *batch) commit(ctx context.Context, conn *pgx.Conn, t *tables, c *cache, known standing, heard func(pubsub.User) bool) (result, error) {
	users, missing := b.users(c)
	state, err := b.load(ctx, conn, t, known, users, missing)
	if err != nil {
		return result{}, err
	}
	r := result{}
	for i := range b.items {
		it := &b.items[i]
		if it.doubtful {
			if _, ok := state.fresh[it.key]; !ok {
				r.duplicates++
				continue
			}
			delete(state.fresh, it.key) // a second one in this batch is a duplicate
		}
		r.folded++
		fold(&it.event, users)
	}

	touched := sorted(users)
	var writes pgx.Batch
	size := t.queueWrites(&writes, touched)
	for _, d := range b.dead {
		writes.Queue(buryDeadLetterSQL, t.partition, d.record.Position.TransactionID, d.record.Position.Offset,
			d.record.UUID, textOrNull(d.record.Payload), d.reason)
	}
	writes.Queue(`COMMIT`)
	events.Reserve(conn, size)
	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {
		return result{}, fmt.Errorf("write: %w", err)
	}
	r.updates = updatesOf(touched, t.partition, state.epoch, heard)
	c.keep(touched)
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

// missing are the rows that folding a batch may touch and that are not
// remembered.
type missing struct {
	users                        []string
	pairUsers, pairConversations []string
	// readAll are the users of whom every conversation with something to read
	// is missing.
	readAll []string
}

// users returns the users that b names, with the conversations that are
// remembered, or else new; and what of them is missing.
func (b *batch) users(c *cache) (map[string]*user, missing) {
	users := make(map[string]*user, len(b.items))
	readers := map[string]struct{}{}
	var m missing
	for i := range b.items {
		d := &b.items[i].event.Data
		for _, id := range d.UserIDs {
			u, ok := users[id]
			if !ok {
				if u = c.user(id); u == nil {
					u = newUser(id)
					m.users = append(m.users, id)
				}
				users[id] = u
			}
			if b.items[i].event.Type == events.UserReadAll {
				if _, ok := readers[id]; !ok {
					readers[id] = struct{}{}
					m.readAll = append(m.readAll, id)
				}
			} else if _, ok := u.conversations[d.ConversationID]; !ok {
				u.conversation(d.ConversationID)
				m.pairUsers = append(m.pairUsers, id)
				m.pairConversations = append(m.pairConversations, d.ConversationID)
			}
		}
	}
	return users, m
}

// doubt marks the events that may have come before, as far as recent knows; all
// of them where that is not to be relied on.
func (b *batch) doubt(recent *recentKeys, all bool) {
	recent.turn()
	for i := range b.items {
		it := &b.items[i]
		it.doubtful = recent.note(it.key) || all
	}
}

// keys returns the keys of the events that are most likely new, and of those that
// are doubtful, in ascending order: neighbours in an index are found and written
// in the same pages, which saves a third of what an entry costs.
func (b *batch) keys() (likelyNew, doubtful [][16]byte) {
	likelyNew = make([][16]byte, 0, len(b.items)) // as nearly all are
	for i := range b.items {
		if it := &b.items[i]; it.doubtful {
			doubtful = append(doubtful, it.key)
		} else {
			likelyNew = append(likelyNew, it.key)
		}
	}
	for _, keys := range [][][16]byte{likelyNew, doubtful} {
		slices.SortFunc(keys, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	}
	return likelyNew, doubtful
}

// loaded is what the tables said at the start of a batch, besides the rows.
type loaded struct {
	standing
	// fresh are the keys of doubtful events that are not remembered from before.
	fresh map[uuid.UUID]struct{}
}

// load begins the transaction, moves the position, remembers the keys and fills
// users from the rows that are missing, all in one round trip. Moving first
// makes a second writer wait here until the first is done, and then find itself
// fenced off.
func (b *batch) load(ctx context.Context, conn *pgx.Conn, t *tables, known standing, users map[string]*user, m missing) (loaded, error) {
	state := loaded{fresh: map[uuid.UUID]struct{}{}}
	var reads pgx.Batch
	reads.Queue(`BEGIN`)
	reads.Queue(t.moveSQL, ConsumerGroup, b.from.TransactionID, b.from.Offset, b.to.TransactionID, b.to.Offset).
		Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 0 {
				return errFenced
			}
			return nil
		})
	reads.Queue(t.standingSQL).QueryRow(func(row pgx.Row) error {
		switch err := row.Scan(&state.epoch, &state.revision, &state.generation); {
		case err != nil:
			return err
		case state.generation != known.generation:
			return errFenced
		case state.revision != known.revision:
			return errRevised
		}
		return nil
	})
	if b.begins {
		reads.Queue(beginGenerationSQL, t.partition, b.generation, b.from.TransactionID, b.from.Offset)
	}
	likelyNew, doubtful := b.keys()
	if len(likelyNew) > 0 {
		reads.Queue(rememberNewKeysSQL(t.partition, b.generation), likelyNew).Exec(expectNewKeys(len(likelyNew)))
	}
	if len(doubtful) > 0 { // which may be of those
		reads.Queue(rememberKeysSQL(t.partition, b.generation), doubtful).
			Query(func(rows pgx.Rows) error { return scanKeys(rows, state.fresh) })
	}
	if len(m.users) > 0 {
		reads.Queue(t.loadUsersSQL, m.users).
			Query(func(rows pgx.Rows) error { return scanUsers(rows, users) })
	}
	if len(m.pairUsers) > 0 {
		reads.Queue(t.loadConversationsSQL, m.pairUsers, m.pairConversations).
			Query(func(rows pgx.Rows) error { return scanConversations(rows, users) })
	}
	if len(m.readAll) > 0 {
		reads.Queue(t.loadUnreadSQL, m.readAll).
			Query(func(rows pgx.Rows) error { return scanConversations(rows, users) })
	}
	const key, id, rest = 20, 32, 4096 // bytes, roughly
	events.Reserve(conn, key*len(b.items)+id*(len(m.users)+len(m.pairUsers)+len(m.pairConversations)+len(m.readAll))+rest)
	if err := conn.SendBatch(ctx, &reads).Close(); err != nil {
		return loaded{}, fmt.Errorf("load: %w", repeated(err))
	}
	return state, nil
}

// textOrNull keeps a payload that is null null.
func textOrNull(payload []byte) *string {
	if payload == nil {
		return nil
	}
	s := string(payload)
	return &s
}
