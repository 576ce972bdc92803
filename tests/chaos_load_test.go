//go:build chaos

package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/events"
)

// chaosPatience bounds one attempt of a writer, since its server may be frozen.
const chaosPatience = 5 * time.Second

// errRefused is an answer that a valid event must never get.
var errRefused = errors.New("refused")

// chaosWriter publishes events of its conversations and rooms (talks) in one way.
type chaosWriter struct {
	c      *chaos
	name   string
	random *rand.Rand
	talks  []*chaosTalk
	// limit is how many events it publishes at once.
	limit int
	// try publishes events once. If it fails with an error other than errRefused, the writer
	// tries again.
	try func(ctx context.Context, batch []string) error
	// repeats makes the writer publish acknowledged events a second time.
	repeats bool
}

// newWriter returns a writer with new talks, to which no other writer publishes.
func (c *chaos) newWriter(name string, conversations, rooms, limit int, try func(ctx context.Context, batch []string) error) *chaosWriter {
	w := &chaosWriter{c: c, name: name, random: c.randomOf(name), limit: limit, try: try, repeats: true}
	for n := range conversations + rooms {
		kind, room := "talk", n >= conversations
		if room {
			kind = "room"
		}
		w.talks = append(w.talks, newChaosTalk(w.random, fmt.Sprintf("%s %s %d", name, kind, n), room))
	}
	c.talks = append(c.talks, w.talks...)
	return w
}

// write publishes until done is closed, and then the last event of each talk.
func (w *chaosWriter) write(done <-chan struct{}) {
	for !w.c.t.Failed() {
		talks, drawn := make([]*chaosTalk, 1+w.random.IntN(w.limit)), []events.Event(nil)
		for i := range talks {
			talks[i] = w.talks[w.random.IntN(len(w.talks))]
			drawn = append(drawn, talks[i].draw(w.random))
		}
		if err := w.publish(talks, drawn); err != nil {
			return
		}
		select {
		case <-done:
			for _, talk := range w.talks {
				if err := w.publish([]*chaosTalk{talk}, []events.Event{talk.finish()}); err != nil {
					return
				}
			}
			return
		case <-time.After(time.Duration(10+w.random.IntN(60)) * time.Millisecond):
		}
	}
}

// publish publishes events until they are acknowledged, and counts them.
func (w *chaosWriter) publish(talks []*chaosTalk, drawn []events.Event) error {
	batch := make([]string, len(drawn))
	for i := range drawn {
		body, err := drawn[i].MarshalJSON()
		if err != nil {
			w.c.t.Error(err)
			return err
		}
		batch[i] = string(body)
	}
	times := 1
	if w.repeats && w.random.IntN(10) == 0 {
		times = 2
	}
	for range times {
		if err := w.insist(batch); err != nil {
			return err
		}
	}
	for i, talk := range talks {
		talk.acknowledge(drawn[i])
	}
	w.c.acknowledged.Add(int64(len(drawn)))
	return nil
}

func (w *chaosWriter) insist(batch []string) error {
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(w.c.ctx, chaosPatience)
		err := w.try(ctx, batch)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errRefused):
			w.c.t.Errorf("%s: %v\n%s", w.name, err, strings.Join(batch, "\n"))
			return err
		case w.c.t.Failed():
			return err
		case w.c.ctx.Err() != nil:
			w.c.t.Errorf("%s has published in vain %d times, last: %v\n%s", w.name, tries, err, strings.Join(batch, "\n"))
			return err
		}
		if tries%10 == 0 {
			w.c.note("%s: %d attempts, last: %v", w.name, tries, err)
		}
		select {
		case <-w.c.ctx.Done():
		case <-time.After(time.Duration(50+w.random.IntN(200)) * time.Millisecond):
		}
	}
}

// overHTTP publishes to any server.
func (c *chaos) overHTTP(random *rand.Rand) func(ctx context.Context, batch []string) error {
	return func(ctx context.Context, batch []string) error {
		body, contentType := batch[0], "application/cloudevents+json"
		if len(batch) > 1 {
			body, contentType = "["+strings.Join(batch, ",")+"]", "application/cloudevents-batch+json"
		}
		status, _, answer, err := exchangeOnce(ctx, publisherKey, http.MethodPost, c.anyServer(random)+"/v1/events", contentType, body)
		if err != nil {
			return err
		}
		switch status {
		case http.StatusAccepted:
			return nil
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			return fmt.Errorf("%d: %s", status, answer)
		default:
			return fmt.Errorf("%w: %d: %s", errRefused, status, answer)
		}
	}
}

// inSQL publishes one event of one user in a transaction on the shard that has the user.
func (c *chaos) inSQL() func(ctx context.Context, batch []string) error {
	var conn *pgx.Conn
	shard := 0
	return func(ctx context.Context, batch []string) (err error) {
		if conn == nil {
			if conn, err = pgx.Connect(ctx, c.urls[shard]); err != nil {
				conn = nil
				return err
			}
		}
		_, err = conn.Exec(ctx, `SELECT badged.publish($1)`, batch[0])
		if err == nil {
			return nil
		}
		_ = conn.Close(ctx) // it has failed already
		conn = nil
		var said *pgconn.PgError
		if errors.As(err, &said) {
			switch {
			case said.Code == "BD100": // another shard has the user
				shard = (shard + 1) % len(c.urls)
			case strings.HasPrefix(said.Code, "22"): // the event is invalid
				return fmt.Errorf("%w: %w", errRefused, err)
			}
		}
		return err
	}
}

// inOutbox publishes in a transaction of another database, from whose outbox a relay carries the
// events.
func (c *chaos) inOutbox() func(ctx context.Context, batch []string) error {
	var conn *pgx.Conn
	return func(ctx context.Context, batch []string) (err error) {
		if conn == nil {
			if conn, err = pgx.Connect(ctx, c.outboxURL); err != nil {
				conn = nil
				return err
			}
		}
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for _, event := range batch {
				if _, err := tx.Exec(ctx, `SELECT badged.publish($1)`, event); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			_ = conn.Close(ctx) // it has failed already
			conn = nil
		}
		return err
	}
}

// toStream adds entries to a stream, from which `badged ingest` reads.
func (c *chaos) toStream(client *redis.Client) func(ctx context.Context, batch []string) error {
	return func(ctx context.Context, batch []string) error {
		_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for _, event := range batch {
				p.XAdd(ctx, &redis.XAddArgs{Stream: chaosStream, Values: []string{"payload", event}})
			}
			return nil
		})
		return err
	}
}
