package tail

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/badged/badged/internal/bridge/broker"
)

// parseNATS parses a URL that names a stream of JetStream.
func parseNATS(a broker.Address) (Target, error) {
	stream, subject := a.Path, a.Take("subject")
	switch {
	case stream == "" || strings.Contains(stream, ","):
		return Target{}, errors.New("the URL must name one stream")
	case strings.ContainsAny(subject, "*> "):
		return Target{}, errors.New("subject must have no wildcards")
	}
	servers, options, err := broker.NATS(&a, "badged tail")
	if err != nil {
		return Target{}, err
	}
	return Target{Stream: stream, open: func() (writer, error) {
		return &natsWriter{NATSConn: broker.NewNATSConn(servers, options), stream: stream, subject: subject}, nil
	}}, nil
}

// natsWriter writes to a stream of JetStream.
type natsWriter struct {
	*broker.NATSConn
	stream string
	// subject is the subject in the URL, to which records are written. "" means the only subject of
	// the stream.
	subject string
	// found is the subject to write to, which check has determined. It is nil until check has read
	// the stream.
	found atomic.Pointer[string]
}

func (w *natsWriter) close() { w.Close() }

func (w *natsWriter) check(ctx context.Context) error {
	js, err := w.Connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, broker.NATSTimeout)
	defer cancel()
	info, err := broker.NATSStream(ctx, js, w.stream)
	if err != nil {
		return err
	}
	subject, has := w.subject, info.Config.Subjects
	switch {
	case subject != "" && !slices.ContainsFunc(has, func(pattern string) bool { return matches(pattern, subject) }):
		return fmt.Errorf("the stream %s does not accept the subject %s, but only %s", w.stream, subject, strings.Join(has, ", "))
	case subject == "" && (len(has) != 1 || strings.ContainsAny(has[0], "*>")):
		return fmt.Errorf("the stream %s has the subjects %s; choose where to write: ?subject=SUBJECT", w.stream, strings.Join(has, ", "))
	case subject == "":
		subject = has[0]
	}
	w.found.Store(&subject)
	return nil
}

// matches reports whether a subject matches a pattern.
func matches(pattern, subject string) bool {
	tokens := strings.Split(subject, ".")
	for i, p := range strings.Split(pattern, ".") {
		switch {
		case p == ">":
			return len(tokens) > i
		case i >= len(tokens) || p != "*" && p != tokens[i]:
			return false
		}
	}
	return len(tokens) == strings.Count(pattern, ".")+1
}

// write writes records. It sends a record only after all records that must precede it are
// acknowledged. Otherwise JetStream could lose a message and store the next message. Both messages
// would then be sent again, and JetStream would drop the second message as a duplicate, so that the
// order would be reversed.
func (w *natsWriter) write(ctx context.Context, records []record) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	js, err := w.Connect()
	if err == nil && w.found.Load() == nil {
		err = w.check(ctx)
	}
	if err != nil {
		return err
	}
	subject := *w.found.Load()
	const inFlight = 256 // the client allows 4,000 unacknowledged messages
	for part := range independent(records, inFlight) {
		if err := w.writeAtOnce(ctx, js, subject, part); err != nil {
			return fmt.Errorf("write to the stream %s of NATS: %w", w.stream, err)
		}
	}
	return nil
}

// independent divides records into consecutive parts of at most n records, such that the records of
// a part may be written in any order.
func independent(records []record, n int) iter.Seq[[]record] {
	return func(yield func([]record) bool) {
		first, about := 0, map[string]bool{}
		for i := range records {
			if i-first == n || slices.ContainsFunc(records[i].about, func(a string) bool { return about[a] }) {
				if !yield(records[first:i]) {
					return
				}
				first = i
				clear(about)
			}
			for _, a := range records[i].about {
				about[a] = true
			}
		}
		if first < len(records) {
			yield(records[first:])
		}
	}
}

// writeAtOnce sends all records without waiting, and then waits for the acknowledgement of each.
func (w *natsWriter) writeAtOnce(ctx context.Context, js jetstream.JetStream, subject string, records []record) error {
	futures := make([]jetstream.PubAckFuture, 0, len(records))
	for i := range records {
		r := &records[i]
		msg := nats.NewMsg(subject)
		msg.Data = r.payload
		msg.Header.Set(headerType, structuredType)
		msg.Header.Set(headerPartition, r.partition)
		if r.place != "" {
			msg.Header.Set(headerPlace, r.place)
		}
		future, err := js.PublishMsgAsync(msg, jetstream.WithMsgID(r.id), jetstream.WithExpectStream(w.stream))
		if err != nil {
			return err
		}
		futures = append(futures, future)
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		case <-ctx.Done():
			return fmt.Errorf("no acknowledgement: %w", ctx.Err())
		}
	}
	return nil
}
