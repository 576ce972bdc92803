package rival

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/tests/bench/stream"
)

// Settings of Watermill.
const (
	// Topics is the number of topics that share the users, each with its own
	// subscriber.
	Topics = 4
	// Ahead is how many published events may be unhandled. The stock query reads
	// and sorts the whole backlog, so a long one would make it look slower than
	// it is.
	Ahead = 4000

	topicPoll = 5 * time.Millisecond
)

// Watermill is the stock watermill-sql publisher and subscriber. A handler applies
// each message in the transaction that read it, as in the project's exactly-once
// example.
type Watermill struct {
	pool      *pgxpool.Pool
	db        *sql.DB
	publisher *watermillsql.Publisher
	handling  *errgroup.Group
	stop      context.CancelFunc

	published, handled atomic.Int64
	// failed is closed when a handler has failed.
	failed <-chan struct{}
}

// NewWatermill makes the tables and starts the subscribers.
func NewWatermill(ctx context.Context, url string, users int) (_ *Watermill, err error) {
	pool, err := openPool(ctx, url, 4*Topics, users)
	if err != nil {
		return nil, err
	}
	// The subscribers outlive the call, and end with Close.
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	handling, lasting := errgroup.WithContext(lasting)
	w := &Watermill{pool: pool, db: stdlib.OpenDBFromPool(pool), handling: handling, stop: stop, failed: lasting.Done()}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close(ctx))
		}
	}()
	w.publisher, err = watermillsql.NewPublisher(w.db, watermillsql.PublisherConfig{
		SchemaAdapter: watermillsql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true,
	}, nil)
	if err != nil {
		return w, err
	}
	for t := range Topics {
		subscriber, err := watermillsql.NewSubscriber(w.db, watermillsql.SubscriberConfig{
			ConsumerGroup: "badges", PollInterval: topicPoll, InitializeSchema: true,
			SchemaAdapter:  watermillsql.DefaultPostgreSQLSchema{},
			OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
		}, nil)
		if err != nil {
			return w, err
		}
		messages, err := subscriber.Subscribe(lasting, topic(t))
		if err != nil {
			return w, errors.Join(err, subscriber.Close())
		}
		handling.Go(func() error { //nolint:contextcheck // messages have their own contexts
			err := w.handle(messages)
			return errors.Join(err, subscriber.Close())
		})
	}
	return w, nil
}

func topic(n int) string { return "badges_" + strconv.Itoa(n) }

// handle applies messages until the channel is closed.
func (w *Watermill) handle(messages <-chan *message.Message) error {
	for msg := range messages {
		tx, ok := watermillsql.TxFromContext(msg.Context())
		if !ok {
			return errors.New("a message came without its transaction")
		}
		var e stream.Event
		err := json.Unmarshal(msg.Payload, &e)
		if err == nil {
			err = applyTx(msg.Context(), tx, e)
		}
		if err != nil {
			msg.Nack()
			return fmt.Errorf("handle a message: %w", err)
		}
		msg.Ack()
		w.handled.Add(1)
	}
	return nil
}

// applyTx applies an event within tx. It needs no locks: all events of a user are
// in one topic, which is handled in order.
func applyTx(ctx context.Context, tx *sql.Tx, e stream.Event) error {
	user, conversation := e.UserID(), e.ConversationID()
	done, err := tx.ExecContext(ctx, seenSQL, key(e))
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return err
	}
	var was state
	err = tx.QueryRowContext(ctx, loadSQL, user, conversation).Scan(&was.last, &was.read)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	now := was.after(e)
	if now == was {
		return nil
	}
	if _, err := tx.ExecContext(ctx, keepSQL, user, conversation, now.last, now.read); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, addSQL, user, now.unread()-was.unread())
	return err
}

// Apply publishes events, and waits while too many are unhandled.
func (w *Watermill) Apply(ctx context.Context, events []stream.Event) error {
	if err := w.await(ctx, Ahead); err != nil {
		return err
	}
	byTopic := make([]message.Messages, Topics)
	for _, e := range events {
		payload, err := json.Marshal(e)
		if err != nil {
			return err
		}
		t := e.User % Topics
		byTopic[t] = append(byTopic[t], message.NewMessage(key(e).String(), payload))
	}
	w.published.Add(int64(len(events)))
	for t, messages := range byTopic {
		if len(messages) == 0 {
			continue
		}
		if err := w.publisher.Publish(topic(t), messages...); err != nil {
			return fmt.Errorf("publish %d events: %w", len(messages), err)
		}
	}
	return nil
}

// settledSQL reads whether the transaction that handled the last message of a
// topic is committed.
const settledSQL = `SELECT (SELECT "offset" FROM "watermill_%[1]s" ORDER BY transaction_id DESC, "offset" DESC LIMIT 1)
       IS NOT DISTINCT FROM (SELECT offset_acked FROM "watermill_offsets_%[1]s")`

// Settle returns once all published events are handled and committed.
func (w *Watermill) Settle(ctx context.Context) error {
	if err := w.await(ctx, 0); err != nil {
		return err
	}
	tick := time.NewTicker(topicPoll)
	defer tick.Stop()
	for t := range Topics {
		for settled := false; !settled; {
			if err := w.pool.QueryRow(ctx, fmt.Sprintf(settledSQL, topic(t))).Scan(&settled); err != nil {
				return fmt.Errorf("read the position of topic %d: %w", t, err)
			}
			if !settled {
				<-tick.C
			}
		}
	}
	return nil
}

// await returns once at most the given number of published events are unhandled.
func (w *Watermill) await(ctx context.Context, most int64) error {
	tick := time.NewTicker(topicPoll)
	defer tick.Stop()
	for w.published.Load()-w.handled.Load() > most {
		select {
		case <-tick.C:
		case <-w.failed:
			return errors.Join(errors.New("a subscriber ended"), w.handling.Wait())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Totals returns the totals of users.
func (w *Watermill) Totals(ctx context.Context, users []string) ([]int64, error) {
	return totals(ctx, w.pool, users)
}

// Close stops the subscribers and closes the connections.
func (w *Watermill) Close(context.Context) error {
	w.stop()
	errs := []error{w.handling.Wait()}
	if w.publisher != nil {
		errs = append(errs, w.publisher.Close())
	}
	errs = append(errs, w.db.Close())
	w.pool.Close()
	return errors.Join(errs...)
}
