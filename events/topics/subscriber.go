package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/pgsession"
)

// Keys of the metadata of messages that a [Subscriber] delivers. The message of a traced event also
// has the keys traceparent and tracestate.
const (
	// MetadataContentType is [events.ContentType] for a valid event, and
	// application/octet-stream for anything else.
	MetadataContentType = "content-type"
	// MetadataPartition is the number of the partition, such as "3".
	MetadataPartition = "badged-partition"
	// MetadataPlace is the place of the event, as [events.Place.String] writes it.
	MetadataPlace = "badged-place"
	// MetadataDamage says why the payload is not a valid event. The projector stores such an
	// event as a dead letter.
	MetadataDamage = "badged-damage"
)

// SubscriberConfig configures a [Subscriber]. Pool, Log and ConsumerGroup are required.
type SubscriberConfig struct {
	// Pool connects to the database of Log.
	Pool *pgxpool.Pool
	Log  *events.Log
	// ConsumerGroup is the name of the consumer group whose position the subscribers share. It has
	// at most 255 characters, and must not be [events.ProjectorGroup] or [events.NotifierGroup].
	ConsumerGroup string
	// PollInterval is the pause between two reads if there is nothing to deliver. It is also the
	// pause between two attempts to get the lock while another subscriber of the group has it. 0
	// means 100 ms.
	PollInterval time.Duration
	// ResendInterval is the pause before a message that was not acknowledged is sent again; 0
	// means 1 s.
	ResendInterval time.Duration
	// RetryInterval is the pause after an error; 0 means 1 s.
	RetryInterval time.Duration
	// Logger logs errors of the database, after which the subscriber retries; nil discards the
	// errors.
	Logger watermill.LoggerAdapter
}

// Subscriber is a watermill [message.Subscriber] of folded events, in the order of folding. A
// message is one event, as CloudEvents JSON. Its UUID is [events.Event.Key], which is the same
// in each partition that has users of the event.
//
// An event is delivered after the projector has folded it; if no projector runs, nothing is
// delivered. So a subscriber misses no event, even if transactions commit in another order than
// they began, and an open transaction delays only its own events. A payload that is not a valid
// event is delivered with [MetadataDamage]. If its row is too large, the payload is empty.
//
// Each message is delivered at least once. A row of the log has up to 1,000 events, and the
// position of the consumer group moves only when all events of a row are acknowledged. After a
// restart of the subscriber, the events of the last row may be delivered again. After a crash of
// Postgres, the events of all rows that were acknowledged in the last second may be delivered
// again.
//
// Only one subscriber of a group gets the messages of a topic: the subscriber whose session has an
// advisory lock. When this subscriber stops, another one gets the lock at its next attempt. If the
// host of the subscriber fails, the lock is released within half a minute. The lock does not work
// through a pooler in transaction mode. The subscribers of watermill-sql do not use the lock: use
// another consumer group for such subscribers.
//
// A Subscriber is safe for concurrent use.
type Subscriber struct {
	cfg SubscriberConfig

	closing context.Context // done when Close is called
	close   context.CancelFunc
	mu      sync.Mutex // guards running: Close must not wait for it while Subscribe or Follow adds to it
	running sync.WaitGroup
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber returns a subscriber. Call Close to end its subscriptions.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	if cfg.Pool == nil || cfg.Log == nil {
		return nil, errors.New("a subscriber needs Pool and Log")
	}
	switch cfg.ConsumerGroup {
	case "":
		return nil, errors.New("a subscriber needs a consumer group")
	case events.ProjectorGroup, events.NotifierGroup:
		return nil, fmt.Errorf("the consumer group %q is badged's own: choose another", cfg.ConsumerGroup)
	}
	cfg.PollInterval = cmp.Or(cfg.PollInterval, 100*time.Millisecond)
	cfg.ResendInterval, cfg.RetryInterval = cmp.Or(cfg.ResendInterval, time.Second), cmp.Or(cfg.RetryInterval, time.Second)
	if cfg.Logger == nil {
		cfg.Logger = watermill.NopLogger{}
	}
	s := &Subscriber{cfg: cfg}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// SubscribeInitialize stores the start of the log as the position of the consumer group in a topic,
// if the group has no position there yet. From then on, archiving does not remove events that the
// group has not read. Subscribe calls SubscribeInitialize too.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	return s.initialize(s.closing, topic)
}

func (s *Subscriber) initialize(ctx context.Context, topic string) error {
	if _, err := s.cfg.Log.PartitionOfTopic(topic); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if _, err := s.cfg.Pool.Exec(ctx, `INSERT INTO `+eventbatch.Positions(topic)+` (consumer_group, offset_acked, last_processed_transaction_id)
VALUES ($1, 0, '0') ON CONFLICT DO NOTHING`, s.cfg.ConsumerGroup); err != nil {
		return fmt.Errorf("subscribe to topic %s: store the position of consumer group %s: %w", topic, s.cfg.ConsumerGroup, err)
	}
	return nil
}

// Subscribe delivers the events of a topic, which is [events.Topic] of a partition, starting after
// the position of the consumer group. It sends each message only after the previous message was
// acknowledged. When ctx is done or Close is called, the contexts of the messages are done and the
// channel is closed.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.initialize(ctx, topic); err != nil {
		return nil, err
	}
	partition, err := s.cfg.Log.PartitionOfTopic(topic)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return nil, fmt.Errorf("subscribe to topic %s: the subscriber is closed", topic)
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel) //nolint:contextcheck // Close ends subscriptions of any context
	sub := &subscription{
		Subscriber: s, partition: partition, topic: topic,
		out: make(chan *message.Message),
	}
	s.running.Go(func() {
		defer cancel()
		defer stop()
		sub.run(ctx)
	})
	return sub.out, nil
}

// Follow calls the function handle with the events of a topic, starting after the position of the
// consumer group. Each call gets all events in up to 100 rows of the log, which suits handlers that
// are faster with many events. When handle returns nil, the position moves after these rows. After
// an error, Follow waits for RetryInterval and calls handle with the same events again. While there
// are no new events, Follow calls handle without events once per PollInterval. It does not call
// handle while another subscriber of the group has the lock of the topic.
//
// Follow returns nil when ctx is done or Close is called. If the partition was split or moved to
// another database, Follow does not return, and does not log an error: the caller must cancel ctx.
func (s *Subscriber) Follow(ctx context.Context, topic string, handle func(ctx context.Context, page []*message.Message) error) error {
	partition, err := s.cfg.Log.PartitionOfTopic(topic)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	s.mu.Lock()
	if s.closing.Err() != nil {
		s.mu.Unlock()
		return fmt.Errorf("follow topic %s: the subscriber is closed", topic)
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)() //nolint:contextcheck // Close ends it, whatever its context
	sub := &subscription{Subscriber: s, partition: partition, topic: topic, handle: handle}
	sub.run(ctx)
	return nil
}

// Close ends all subscriptions and closes their channels. Messages that are not acknowledged
// are delivered again, to another subscriber of the group.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.close()
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// subscription is one call of Subscribe or Follow.
type subscription struct {
	*Subscriber
	partition int
	topic     string
	// out receives single messages. It is nil if handle is set: handle gets several per call.
	out    chan *message.Message
	handle func(ctx context.Context, page []*message.Message) error
}

// run consumes the topic until ctx is done. After an error it waits and tries again.
func (s *subscription) run(ctx context.Context) {
	if s.out != nil {
		defer close(s.out)
	}
	for ctx.Err() == nil {
		pause := s.cfg.PollInterval
		if err := s.consume(ctx); err != nil && ctx.Err() == nil && !s.leaves(ctx) {
			s.cfg.Logger.Error("The subscriber tries again", err, watermill.LogFields{"topic": s.topic, "consumer_group": s.cfg.ConsumerGroup})
			pause = s.cfg.RetryInterval
		}
		_ = wait.For(ctx, pause)
	}
}

// leaves reports whether run must not log an error: the partition was split or has moved to another
// database, and the caller of Follow is expected to cancel the context soon. For Subscribe, leaves
// returns false, so that every error is logged.
func (s *subscription) leaves(ctx context.Context) bool {
	return s.handle != nil && eventlog.IsGone(ctx, s.cfg.Pool, s.partition)
}

// consume gets the lock of the topic, then delivers messages until ctx is done or the database
// fails. If another subscriber of the group has the lock, it returns nil at once.
func (s *subscription) consume(ctx context.Context) error {
	conn, err := s.lock(ctx)
	if err != nil || conn == nil {
		return err
	}
	defer pgsession.CloseSession(ctx, conn)
	for ctx.Err() == nil {
		page, err := s.read(ctx, conn)
		if err != nil {
			return fmt.Errorf("read topic %s: %w", s.topic, err)
		}
		if s.handle != nil {
			if err := s.handOver(ctx, conn, page); err != nil {
				return err
			}
		} else {
			for i := range page {
				if err := s.deliver(ctx, conn, &page[i]); err != nil {
					return err
				}
			}
		}
		if len(page) == 0 {
			_ = wait.For(ctx, s.cfg.PollInterval)
		}
	}
	return nil
}

// lock returns a session that has the lock of the group on the topic, or nil if another session has
// the lock. The session is removed from the pool, since it may last as long as the subscription.
// The session commits without waiting for the disk (synchronous_commit = off).
func (s *subscription) lock(ctx context.Context) (*pgx.Conn, error) {
	pooled, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect for topic %s: %w", s.topic, err)
	}
	var locked bool
	err = pooled.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended('badged subscriber ' || $1 || ' ' || $2, 0))`,
		s.topic, s.cfg.ConsumerGroup).Scan(&locked)
	if err != nil || !locked {
		pooled.Release()
		if err != nil {
			return nil, fmt.Errorf("lock topic %s for consumer group %s: %w", s.topic, s.cfg.ConsumerGroup, err)
		}
		return nil, nil
	}
	conn := pooled.Hijack()
	err = pgsession.Watch(ctx, conn)
	if err == nil {
		_, err = conn.Exec(ctx, `SET synchronous_commit = off`)
	}
	if err != nil {
		pgsession.CloseSession(ctx, conn)
		return nil, fmt.Errorf("consume topic %s: %w", s.topic, err)
	}
	return conn, nil
}

// moveTimeout limits the statement that moves the position. The end of the subscription's context
// does not cancel this statement.
const moveTimeout = 5 * time.Second

// deliver delivers the events of a row, then moves the position of the group after the row.
func (s *subscription) deliver(ctx context.Context, conn *pgx.Conn, r *logRow) error {
	for _, msg := range s.messages(r) {
		if err := s.send(ctx, msg); err != nil {
			return fmt.Errorf("deliver %s of topic %s: %w", msg.Metadata.Get(MetadataPlace), s.topic, err)
		}
	}
	return s.move(ctx, conn, r)
}

// handOver calls handle with the events of a page (rows that one query read) until handle succeeds,
// then moves the position of the group after these rows. After a failure handOver checks that the
// session is still connected, since the lock ends with the session.
func (s *subscription) handOver(ctx context.Context, conn *pgx.Conn, page []logRow) error {
	var all []*message.Message
	for i := range page {
		all = append(all, s.messages(&page[i])...)
	}
	for {
		err := s.handle(ctx, all)
		if err == nil && len(page) > 0 {
			return s.move(ctx, conn, &page[len(page)-1])
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		_ = wait.For(ctx, s.cfg.RetryInterval)
		if err := conn.Ping(ctx); err != nil {
			return fmt.Errorf("the session of topic %s: %w", s.topic, err)
		}
	}
}

// move moves the position of the group to a row. It completes even if ctx ends meanwhile.
func (s *subscription) move(ctx context.Context, conn *pgx.Conn, r *logRow) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveTimeout)
	defer cancel()
	moved, err := conn.Exec(ctx, `UPDATE `+eventbatch.Positions(s.topic)+`
SET last_processed_transaction_id = $2::bigint::text::xid8, offset_acked = $3 WHERE consumer_group = $1`, s.cfg.ConsumerGroup, r.TransactionID, r.Offset)
	if err == nil && moved.RowsAffected() == 0 {
		err = errDeleted
	}
	if err != nil {
		return fmt.Errorf("move the position of consumer group %s to %s of topic %s: %w", s.cfg.ConsumerGroup, r.Position, s.topic, err)
	}
	return nil
}

// send sends a message, and sends it again after ResendInterval until it is acknowledged.
func (s *subscription) send(ctx context.Context, original *message.Message) error {
	for ctx.Err() == nil {
		msg := original.Copy()
		msgCtx, cancel := context.WithCancel(ctx)
		msg.SetContext(msgCtx)
		acknowledged, err := s.sendOnce(ctx, msg)
		cancel()
		if acknowledged || err != nil {
			return err
		}
		_ = wait.For(ctx, s.cfg.ResendInterval)
	}
	return ctx.Err()
}

func (s *subscription) sendOnce(ctx context.Context, msg *message.Message) (acknowledged bool, err error) {
	select {
	case s.out <- msg:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	select {
	case <-msg.Acked():
		return true, nil
	case <-msg.Nacked():
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
