package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/badges"
)

// meter sends messages to the room, or to the conversation that lists all members, and measures
// what a message costs.
type meter struct {
	store  *store
	reader *badges.Reader
	crowd  *crowd
	// everywhere has one user of each partition.
	everywhere []string
	// The mutex `one` is locked while send runs, so that the messages of two requests are not
	// measured at the same time.
	one sync.Mutex
}

// newMeter returns a meter for a room.
func newMeter(s *store, pool *pgxpool.Pool, log *events.Log) *meter {
	m := &meter{store: s, reader: badges.NewReader(pool, log)}
	missing := log.Partitions()
	for n, seen := 1, map[int]bool{}; missing > 0; n++ {
		if id := guestID(n); !seen[log.PartitionOf(id)] {
			seen[log.PartitionOf(id)] = true
			m.everywhere = append(m.everywhere, id)
			missing--
		}
	}
	return m
}

// isFolded reports whether the badges in all partitions include all events up to a transaction.
func (m *meter) isFolded(ctx context.Context, transactionID int64) (bool, error) {
	return m.reader.Folded(ctx, m.everywhere, transactionID)
}

// cost is what a message costs.
type cost struct {
	// Seq is the seq of the last message that was sent.
	Seq int64 `json:"seq"`
	// Members is the number of members of the room when the message was sent.
	Members int `json:"members"`
	// Rows is the number of rows that the message has added or changed in badged's tables. It is 0
	// if several messages were sent, because a later message may change the rows of an earlier
	// message again.
	Rows int `json:"rows"`
}

// send sends messages from random guests of the room, and returns when the badges include these
// messages. After each message was published, send calls the function `sent`.
func (m *meter) send(ctx context.Context, to conversation, messages int, sent func(message)) (cost, error) {
	m.one.Lock()
	defer m.one.Unlock()
	c := cost{Members: m.crowd.now().Members}
	users := to.Members
	if to.ConversationID == copied {
		users = append(slices.Clone(users), guestIDs(0, c.Members-hosts)...)
	}
	var receipt events.Receipt
	for range messages {
		sender := guestID(1 + rand.N(c.Members-hosts)) //nolint:gosec // chatter
		text := to.lines[rand.N(len(to.lines))]        //nolint:gosec // chatter
		msg, r, err := m.store.sendTo(ctx, to, users, sender, text)
		if err != nil {
			return cost{}, err
		}
		sent(msg)
		receipt, c.Seq = r, msg.Seq
	}
	if err := awaitFolded(ctx, m.isFolded, receipt.TransactionID); err != nil {
		return cost{}, err
	}
	if messages > 1 {
		return c, nil
	}
	var err error
	c.Rows, err = m.store.rowsOf(ctx, to, c.Seq, receipt)
	return c, err
}

// foldedBySQL returns the ids of the transactions that have folded a message. They are found by the
// rows that they wrote: in each partition the row of the room, or the row of the conversation for
// each user.
const foldedBySQL = `SELECT xmin::text FROM badged.rooms WHERE conversation_id = $1
UNION SELECT xmin::text FROM badged.conversations WHERE conversation_id = $1 AND joined IS NULL AND last_seq = $2`

// tablesSQL returns all tables of badged except the log.
const tablesSQL = `SELECT oid::regclass::text FROM pg_class
WHERE relnamespace = 'badged'::regnamespace AND relkind = 'r' AND (relname !~ '^events_' OR relname ~ '_offsets$')`

// rowsOf counts the rows that a message has written. It finds the rows of the log by the
// transaction that appended the message, and the rows of other tables by the transactions that
// folded it (xmin). It does not count the rows of the chat backend itself.
func (s *store) rowsOf(ctx context.Context, c conversation, seq int64, receipt events.Receipt) (n int, err error) {
	var by, tables []string
	if by, err = s.texts(ctx, foldedBySQL, c.ConversationID, seq); err == nil {
		tables, err = s.texts(ctx, tablesSQL)
	}
	if err != nil {
		return 0, fmt.Errorf("count the rows of a message: %w", err)
	}
	query := `SELECT 0`
	for _, p := range receipt.Partitions {
		query += ` + (SELECT count(*) FROM badged.` + events.Topic(p) + ` WHERE transaction_id = $1::bigint::text::xid8)`
	}
	for _, table := range tables {
		query += ` + (SELECT count(*) FROM ` + table + ` WHERE xmin = ANY ($2::text[]::xid[]))`
	}
	if err := s.pool.QueryRow(ctx, query, receipt.TransactionID, by).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the rows of a message: %w", err)
	}
	return n, nil
}

// texts returns the rows of a query with one text column.
func (s *store) texts(ctx context.Context, query string, args ...any) ([]string, error) {
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const (
	// maxBurst is the maximum number of messages that a page can send with one request.
	maxBurst = 50
	// sendTimeout bounds one request. A message to 100,000 users takes less time even on a busy
	// machine.
	sendTimeout = time.Minute
)

type roomBody struct {
	Members int `json:"members"`
}

func (d *Demo) postRoom(_ context.Context, body roomBody) (any, error) {
	if body.Members < fewestMembers || body.Members > mostMembers {
		return nil, refusal(fmt.Sprintf("members is %d to %d", fewestMembers, mostMembers))
	}
	return d.crowd.ask(body.Members), nil
}

type roomMessagesBody struct {
	ConversationID string `json:"conversation_id"`
	Messages       int    `json:"messages"`
}

func (d *Demo) postRoomMessages(ctx context.Context, body roomMessagesBody) (any, error) {
	to, err := findConversation(body.ConversationID)
	switch {
	case err != nil || to.ConversationID != townHall && to.ConversationID != copied:
		return nil, refusal("the conversation is town-hall or town-hall-copy")
	case body.Messages < 1 || body.Messages > maxBurst:
		return nil, refusal(fmt.Sprintf("messages is 1 to %d", maxBurst))
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	c, err := d.meter.send(ctx, to, body.Messages, d.feed.message)
	return c, err
}
