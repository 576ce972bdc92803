package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
)

// eventSource is the source of the demo's events.
const eventSource = "badged/demo"

// message is one chat message as the page shows it.
type message struct {
	ConversationID   string    `json:"conversation_id"`
	Seq              int64     `json:"seq"`
	SenderID         string    `json:"sender_id"`
	Text             string    `json:"text"`
	MentionedUserIDs []string  `json:"mentioned_user_ids"`
	Time             time.Time `json:"time"`
	// Recalled messages have no text.
	Recalled bool `json:"recalled"`
}

// store is the database of the chat backend: its messages are in a schema of
// their own, next to badged's.
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
CREATE INDEX IF NOT EXISTS messages_sent_at ON demo.messages (sent_at)`

// create creates the tables if they are missing.
func (s *store) create(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, storeSchema); err != nil {
		return fmt.Errorf("create the tables of the demo: %w", err)
	}
	for _, c := range conversations() {
		if _, err := s.pool.Exec(ctx, `INSERT INTO demo.conversations VALUES ($1, 0) ON CONFLICT DO NOTHING`, c.ConversationID); err != nil {
			return fmt.Errorf("create the conversations of the demo: %w", err)
		}
	}
	// Some people do not get every message counted. The ids are fixed, so a
	// repetition has no effect.
	return s.publish(ctx, []events.Event{
		level("dev", "random", events.LevelNone),
		level("ada", "random", events.LevelMentions),
		level("ben", "releases", events.LevelNone),
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

// send stores a message and publishes its delivery in one transaction, as a
// chat backend would: both or neither take effect. A sender has read the
// messages before.
func (s *store) send(ctx context.Context, c conversation, senderID, text string) (message, error) {
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
		id := fmt.Sprintf("%s/%d", m.ConversationID, m.Seq)
		var evs []events.Event
		if senderID != bot && m.Seq > 1 {
			evs = append(evs, events.Event{
				ID: id + "/read", Source: eventSource, Type: events.ConversationRead, Time: m.Time,
				Data: events.Data{ConversationID: m.ConversationID, UserIDs: []string{senderID}, UpToSeq: m.Seq - 1},
			})
		}
		evs = append(evs, events.Event{
			ID: id, Source: eventSource, Type: events.MessageDelivered, Time: m.Time,
			Data: events.Data{
				ConversationID: m.ConversationID, Seq: m.Seq, SenderID: senderID, Category: c.Category,
				UserIDs: without(c.Members, senderID), MentionedUserIDs: m.MentionedUserIDs,
			},
		})
		receipt, err = s.log.Publish(ctx, tx, evs...)
		return err
	})
	if err != nil {
		return message{}, err
	}
	s.wake(receipt.Partitions)
	return m, nil
}

// errNotRecalled is returned if a sender has no such message to recall.
var errNotRecalled = errors.New("there is no such message of this sender, or it was recalled before")

// recall deletes the text of a message and publishes its recall, in one
// transaction.
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
		receipt, err = s.log.Publish(ctx, tx, events.Event{
			ID: fmt.Sprintf("%s/%d/recalled", m.ConversationID, m.Seq), Source: eventSource, Type: events.MessageRecalled,
			Data: events.Data{ConversationID: m.ConversationID, Seq: m.Seq, UserIDs: without(c.Members, senderID)},
		})
		return err
	})
	if err != nil {
		return message{}, err
	}
	s.wake(receipt.Partitions)
	return m, nil
}

// setLevel sets the level of a conversation for a user.
func (s *store) setLevel(ctx context.Context, userID, conversationID string, l events.Level) error {
	return s.publish(ctx, []events.Event{levelSet("level/"+rand.Text(), userID, conversationID, l)})
}

// recent returns the last messages of each conversation, oldest first, for a
// page that opens.
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
var errNoSuchConversation = errors.New("there is no such conversation")

func findConversation(conversationID string) (conversation, error) {
	for _, c := range conversations() {
		if c.ConversationID == conversationID {
			return c, nil
		}
	}
	return conversation{}, errNoSuchConversation
}
