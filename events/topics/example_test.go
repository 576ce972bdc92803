package topics_test

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
)

// Push notifications for what badged has counted. A message that is not acknowledged
// comes again.
func ExampleNewSubscriber() {
	consume := func(ctx context.Context, pool *pgxpool.Pool, push func(context.Context, events.Event) error) error {
		log, err := events.Open(ctx, pool)
		if err != nil {
			return err
		}
		subscriber, err := topics.NewSubscriber(topics.SubscriberConfig{Pool: pool, Log: log, ConsumerGroup: "push"})
		if err != nil {
			return err
		}
		defer subscriber.Close()

		running, ctx := errgroup.WithContext(ctx)
		for p := range log.Partitions() {
			messages, err := subscriber.Subscribe(ctx, events.Topic(p))
			if err != nil {
				return err
			}
			running.Go(func() error {
				for msg := range messages {
					e, err := events.Decode(msg.Payload)
					if err == nil {
						err = push(ctx, e)
					}
					var invalid *events.InvalidError // the projector has a dead letter of it
					if err != nil && !errors.As(err, &invalid) {
						msg.Nack()
						continue
					}
					msg.Ack()
				}
				return ctx.Err()
			})
		}
		return running.Wait()
	}
	_ = consume
}

// Events from another watermill topic, one call for each message.
func ExampleNewPublisher() {
	relay := func(log *events.Log, e events.Event) error {
		payload, err := e.MarshalJSON()
		if err != nil {
			return err
		}
		topic := events.Topic(log.PartitionOf(e.Data.UserIDs[0]))
		return topics.NewPublisher(log).Publish(topic, message.NewMessage(e.Key().String(), payload))
	}
	_ = relay
}
