package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
)

const eventSource = "badged/demo"

// message is a chat message, as the page gets it.
type message struct {
	ConversationID   string    `json:"conversation_id"`
	Seq              int64     `json:"seq"`
	SenderID         string    `json:"sender_id"`
	Text             string    `json:"text"`
	MentionedUserIDs []string  `json:"mentioned_user_ids"`
	Time             time.Time `json:"time"`
	// Recalled is true if the message was recalled; it then has no text.
	Recalled bool `json:"recalled"`
}

// store has the tables of the chat backend. They are in a separate schema, in the same database as
// the tables of badged.
type store struct {
	pool *pgxpool.Pool
	log  *events.Log
	wake func(partitions []int)
}

const storeSchema = `
CREATE SCHEMA IF NOT EXISTS demo;
CREATE TABLE IF NOT EXISTS demo.conversations (
    conversation_id text PRIMARY KEY,
    last_seq        bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS demo.messages (
    conversation_id    text NOT NULL REFERENCES demo.conversations,
    seq                bigint NOT NULL,
    sender_id          text NOT NULL,
    text               text NOT NULL,
    mentioned_user_ids text[] NOT NULL,
    sent_at            timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (conversation_id, seq)
);
ALTER TABLE demo.messages ADD COLUMN IF NOT EXISTS recalled boolean NOT NULL DEFAULT false;
CREATE INDEX IF NOT EXISTS messages_sent_at ON demo.messages (sent_at);
CREATE TABLE IF NOT EXISTS demo.rooms (
    conversation_id text PRIMARY KEY,
    guests          integer NOT NULL
)`

// create creates the tables and conversations that do not exist yet, and sets some levels.
func (s *store) create(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, storeSchema); err != nil {
		return fmt.Errorf("create the tables of the demo: %w", err)
	}
	var ids []string
	for _, c := range conversations() {
		ids = append(ids, c.ConversationID)
	}
	if _, err := s.pool.Exec(ctx, `INSERT INTO demo.conversations SELECT unnest($1::text[]), 0 ON CONFLICT DO NOTHING`, ids); err != nil {
		return fmt.Errorf("create the conversations of the demo: %w", err)
	}
	// Set some levels, so that some messages do not count for some people. The events have fixed
	// ids, so publishing them again has no effect.
	return s.publish(ctx, []events.Event{
		{
			ID: "level/dev/acme/random", Source: eventSource, Type: events.CategoryLevelSet,
			Data: events.Data{UserIDs: []string{"dev"}, Category: "acme/random", Level: events.LevelNone},
		},
		level("ada", "random", events.LevelMentions),
	})
}

func level(userID, conversationID string, l events.Level) events.Event {
	return levelSet("level/"+userID+"/"+conversationID, userID, conversationID, l)
}

func levelSet(id, userID, conversationID string, l events.Level) events.Event {
	return events.Event{
		ID: id, Source: eventSource, Type: events.ConversationLevelSet,
		Data: events.Data{ConversationID: conversationID, UserIDs: []string{userID}, Level: l},
	}
}

func (s *store) publish(ctx context.Context, evs []events.Event) error {
	receipt, err := s.log.Append(ctx, evs...)
	if err != nil {
		return err
	}
	s.wake(receipt.Partitions)
	return nil
}

// send sends a message to the people in a conversation or the members of a room. For the sender, it
// marks the earlier messages as read.
func (s *store) send(ctx context.Context, c conversation, senderID, text string) (message, error) {
	m, _, err := s.sendTo(ctx, c, c.Members, senderID, text)
	return m, err
}

// sendTo stores a message and publishes its events in one transaction, as a chat backend would, so
// that the message and its events either both exist or neither does. users are the recipients; for
// a room they are ignored.
func (s *store) sendTo(ctx context.Context, c conversation, users []string, senderID, text string) (message, events.Receipt, error) {
	m := message{
		ConversationID: c.ConversationID, SenderID: senderID, Text: text,
		MentionedUserIDs: mentionedIn(text, without(c.Members, senderID)),
	}
	if m.MentionedUserIDs == nil {
		m.MentionedUserIDs = []string{}
	}
	var receipt events.Receipt
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `WITH next AS (
    UPDATE demo.conversations SET last_seq = last_seq + 1 WHERE conversation_id = $1 RETURNING last_seq
)
INSERT INTO demo.messages (conversation_id, seq, sender_id, text, mentioned_user_ids)
SELECT $1, last_seq, $2, $3, $4 FROM next
RETURNING seq, sent_at`, m.ConversationID, m.SenderID, m.Text, m.MentionedUserIDs).Scan(&m.Seq, &m.Time)
		if err != nil {
			return fmt.Errorf("store the message: %w", err)
		}
		receipt, err = s.log.Publish(ctx, tx, eventsOf(c, &m, users)...)
		return err
	})
	if err != nil {
		return message{}, events.Receipt{}, err
	}
	s.wake(receipt.Partitions)
	return m, receipt, nil
}

// eventsOf returns the events of a message: a read by the sender, and deliveries to users or a
// message to the members of a room.
func eventsOf(c conversation, m *message, users []string) []events.Event {
	event := func(suffix string, t events.Type, d events.Data) events.Event {
		d.ConversationID = m.ConversationID
		return events.Event{ID: fmt.Sprintf("%s/%d%s", m.ConversationID, m.Seq, suffix), Source: eventSource, Type: t, Time: m.Time, Data: d}
	}
	var all []events.Event
	if slices.Contains(c.Members, m.SenderID) && m.Seq > 1 {
		all = append(all, event("/read", events.ConversationRead, events.Data{UserIDs: []string{m.SenderID}, UpToSeq: m.Seq - 1}))
	}
	content := events.Data{Seq: m.Seq, SenderID: m.SenderID, Category: c.Category, MentionedUserIDs: m.MentionedUserIDs}
	if c.Kind == "room" {
		return append(all, event("", events.RoomPosted, content))
	}
	suffix := ""
	for some := range slices.Chunk(without(users, m.SenderID), events.MaxUsers) {
		content.UserIDs = some
		all = append(all, event(suffix, events.MessageDelivered, content))
		// Of the several events of a message to many users, only the first needs the mentions: only
		// people can be mentioned, and all people are among the users of the first event.
		content.MentionedUserIDs = nil
		suffix = fmt.Sprintf("/%d", len(all))
	}
	return all
}

// errNotRecalled is returned if the sender has no such message, or has recalled it already.
const errNotRecalled = refusal("there is no such message of this sender, or it was recalled before")

// recall deletes the text of a message and publishes the recall, in one transaction.
func (s *store) recall(ctx context.Context, c conversation, senderID string, seq int64) (message, error) {
	m := message{ConversationID: c.ConversationID, Seq: seq, SenderID: senderID, Recalled: true}
	var receipt events.Receipt
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `UPDATE demo.messages SET recalled = true, text = ''
WHERE conversation_id = $1 AND seq = $2 AND sender_id = $3 AND NOT recalled
RETURNING mentioned_user_ids, sent_at`, m.ConversationID, m.Seq, m.SenderID).Scan(&m.MentionedUserIDs, &m.Time)
		if errors.Is(err, pgx.ErrNoRows) {
			return errNotRecalled
		}
		if err != nil {
			return fmt.Errorf("recall the message: %w", err)
		}
		recall := events.Event{
			ID: fmt.Sprintf("%s/%d/recalled", m.ConversationID, m.Seq), Source: eventSource, Type: events.MessageRecalled,
			Data: events.Data{ConversationID: m.ConversationID, Seq: m.Seq, UserIDs: without(c.Members, senderID)},
		}
		if c.Kind == "room" {
			recall.Type, recall.Data.UserIDs = events.RoomRecalled, nil
		}
		receipt, err = s.log.Publish(ctx, tx, recall)
		return err
	})
	if err != nil {
		return message{}, err
	}
	s.wake(receipt.Partitions)
	return m, nil
}

func (s *store) setLevel(ctx context.Context, userID, conversationID string, l events.Level) error {
	return s.publish(ctx, []events.Event{levelSet("level/"+rand.Text(), userID, conversationID, l)})
}

// recent returns the latest messages of each conversation, ordered by time. A page gets them when
// it is opened.
func (s *store) recent(ctx context.Context) ([]message, error) {
	rows, err := s.pool.Query(ctx, `SELECT conversation_id, seq, sender_id, text, mentioned_user_ids, sent_at, recalled
FROM demo.conversations AS c
CROSS JOIN LATERAL (
    SELECT seq, sender_id, text, mentioned_user_ids, sent_at, recalled
    FROM demo.messages AS m WHERE m.conversation_id = c.conversation_id ORDER BY seq DESC LIMIT 30
) AS last
ORDER BY sent_at, seq`)
	if err != nil {
		return nil, fmt.Errorf("read the last messages: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (message, error) {
		var m message
		err := row.Scan(&m.ConversationID, &m.Seq, &m.SenderID, &m.Text, &m.MentionedUserIDs, &m.Time, &m.Recalled)
		return m, err
	})
}

// errNoSuchConversation is returned for an unknown conversation.
const errNoSuchConversation = refusal("there is no such conversation")

func findConversation(conversationID string) (conversation, error) {
	for _, c := range conversations() {
		if c.ConversationID == conversationID {
			return c, nil
		}
	}
	return conversation{}, errNoSuchConversation
}
