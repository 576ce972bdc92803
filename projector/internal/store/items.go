package store

import (
	"errors"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/internal/badge"
)

// How much of the log is read at once, until the fold's speed is known.
const (
	BatchBytes = 8 << 20 // of payload
	FirstBatch = 500     // events
)

// Item is an event that can be folded.
type Item struct {
	Event events.Event
	Key   uuid.UUID
	// Users are the users of the event, in its order.
	Users UserSet
}

// NewItem decodes a record of a partition. The error is the reason why it
// cannot be folded.
func NewItem(r *events.Record, partition, partitions int) (Item, error) {
	if r.Damage != nil {
		return Item{}, r.Damage
	}
	e, err := events.Decode(r.Payload)
	if err != nil {
		return Item{}, err
	}
	if e.Type == events.ConversationExpired && !r.Own {
		return Item{}, ErrForged
	}
	e.AppendedAt = r.AppendedAt
	return ItemOf(e, partition, partitions)
}

// ErrForged is the error of an event of a reserved type that badged did not
// write.
var ErrForged = errors.New("type: conversation.expired is written by badged itself only")

// ItemOf returns an event of a partition as an item.
func ItemOf(e events.Event, partition, partitions int) (Item, error) {
	users, err := usersOf(&e, partition, partitions)
	if err != nil {
		return Item{}, err
	}
	return Item{Event: e, Key: e.Key(), Users: users}, nil
}

// Fold applies e to each of its users.
func Fold(e *events.Event, users map[string]*badge.User) {
	var mentioned map[string]struct{}
	if len(e.Data.MentionedUserIDs) > 0 {
		mentioned = make(map[string]struct{}, len(e.Data.MentionedUserIDs))
		for _, id := range e.Data.MentionedUserIDs {
			mentioned[id] = struct{}{}
		}
	}
	for _, id := range e.Data.UserIDs {
		_, m := mentioned[id]
		if u := users[id]; u.Apply(e, m) && u.ChangedAt == 0 {
			u.ChangedAt = e.AppendedAt.UnixMicro()
		}
	}
}

// Missing are the rows that a batch may touch and that are not cached.
type Missing struct {
	Users                        []string
	PairUsers, PairConversations []string
	// ReadAll are the users that need every conversation with something to
	// read.
	ReadAll []string
}

// UsersIn returns the users that items name, cached or new, with their cached
// conversations, and the rows that are missing.
func UsersIn(items []Item, c *Cache) (map[string]*badge.User, Missing) {
	users := make(map[string]*badge.User, len(items))
	readers := map[string]struct{}{}
	var m Missing
	for i := range items {
		d := &items[i].Event.Data
		for _, id := range d.UserIDs {
			u, ok := users[id]
			if !ok {
				if u = c.User(id); u == nil {
					u = badge.NewUser(id)
					m.Users = append(m.Users, id)
				}
				users[id] = u
			}
			if items[i].Event.Type == events.UserReadAll {
				if _, ok := readers[id]; !ok && !u.Complete {
					readers[id] = struct{}{}
					m.ReadAll = append(m.ReadAll, id)
				}
			} else if _, ok := u.Conversations[d.ConversationID]; !ok {
				u.Conversation(d.ConversationID)
				if !u.Complete {
					m.PairUsers = append(m.PairUsers, id)
					m.PairConversations = append(m.PairConversations, d.ConversationID)
				}
			}
		}
	}
	return users, m
}
