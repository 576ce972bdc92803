package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/bridge/backpressure"
)

// read reads a partition of the broker and stores its messages until ctx is done. After an error it
// starts again at the stored position.
func (s *source) read(ctx context.Context, p Partition) {
	w := worker{source: s, partition: p, key: backlogKey{s.Name, p}}
	defer s.cfg.Metrics.backlogs.remove(w.key)
	defer s.forget(p.String())
	pauses, refused := newBackoff(), time.Time{}
	for ctx.Err() == nil {
		err := w.follow(ctx, func() {
			pauses.Reset()
			refused = time.Time{}
			s.report(ctx, p.String(), nil)
		})
		switch {
		case errors.Is(err, errTaken): // normal for a short time, while processes rebalance
			s.cfg.Logger.WarnContext(ctx, "another process has read further, or partitions of the log have moved; reading again from the stored position", "broker", s.Name, "partition", p.String())
		case errors.Is(err, events.ErrNotHeld) && (refused.IsZero() || time.Since(refused) < s.cfg.switchTime): // normal for a short time
			if refused.IsZero() {
				refused = time.Now()
				s.cfg.Logger.InfoContext(ctx, "a partition of the log has moved or was split; reading again", "broker", s.Name, "partition", p.String())
			}
		default:
			s.report(ctx, p.String(), err)
		}
		_ = wait.For(ctx, pauses.Next())
	}
}

// worker reads one partition of a broker.
type worker struct {
	*source
	partition Partition
	key       backlogKey
}

// follow reads and stores batches, beginning at the stored position, until ctx is done or an error
// occurs. After each stored batch, it calls the function `well`.
func (w *worker) follow(ctx context.Context, well func()) error {
	position := positionOf{pool: w.cfg.Pool, log: w.cfg.Log, broker: w.Name, partition: w.partition}
	if w.cfg.Cluster != nil {
		position.places = &places{appender: w.cfg.appender, all: w.cfg.Cluster.Databases()}
	}
	again, err := position.load(ctx)
	if err != nil {
		return err
	}
	if again {
		w.cfg.Logger.WarnContext(ctx, "a stream was deleted and created again; reading it from its first message; messages of the deleted stream that were not read are lost",
			"broker", w.Name, "partition", w.partition.String())
	}
	reader, err := w.broker.Open(ctx, w.partition, position.position)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	batches := make(chan Batch)
	read := make(chan error, 1)
	go func() {
		defer close(batches)
		read <- readAhead(ctx, reader, batches)
	}()
	defer func() {
		cancel()
		for range batches { // discard the remaining batches until readAhead has ended
			continue
		}
		reader.Close()
	}()
	for b := range batches {
		if err := w.store(ctx, &position, &b); err != nil {
			return err
		}
		well()
	}
	return <-read
}

// readAhead reads batches and sends them to the channel `to`. So it reads the next batch while the
// caller stores the previous batch.
func readAhead(ctx context.Context, r Reader, to chan<- Batch) error {
	for {
		b, err := r.Next(ctx)
		if err != nil {
			return err
		}
		select {
		case to <- b:
		case <-ctx.Done():
			return nil
		}
	}
}

// store stores a batch and updates the metrics of the partition.
func (w *worker) store(ctx context.Context, position *positionOf, b *Batch) error {
	backlogs := w.cfg.Metrics.backlogs
	if len(b.Messages) > 0 {
		backlogs.set(w.key, max(0, b.Backlog)+int64(len(b.Messages)), b.Messages[0].Time)
	}
	if b.Note != "" {
		w.cfg.Logger.WarnContext(ctx, b.Note, "broker", w.Name, "partition", w.partition.String())
	}
	var lost []letter
	if b.Lost > 0 {
		lost = []letter{{origin: position.origin("lost"), reason: fmt.Sprintf(
			"the broker deleted up to %d messages before they were read; let the broker keep messages longer, and publish the lost events again", b.Lost)}}
		w.cfg.Metrics.lost.WithLabelValues(w.Name, w.partition.Stream).Add(float64(b.Lost))
		w.cfg.Logger.ErrorContext(ctx, "a broker deleted messages before they were read", "broker", w.Name, "partition", w.partition.String(), "messages", b.Lost)
	}
	if b.Position != "" && b.Position != position.position || lost != nil {
		if b.Position == "" {
			b.Position = position.position
		}
		position.notice(b)
		all := position.decode(b.Messages)
		if err := w.admit(ctx, all.events); err != nil {
			return err
		}
		all.lost = lost
		done, err := position.store(ctx, b, all)
		w.count(&done)
		if err != nil {
			return err
		}
	}
	since := time.Time{}
	if n := len(b.Messages); n > 0 && b.Backlog > 0 {
		since = b.Messages[n-1].Time
	} else if b.Backlog > 0 {
		return nil // the oldest unread message, and so the age of the backlog, is still the same
	}
	backlogs.set(w.key, max(0, b.Backlog), since)
	return nil
}

func (w *worker) count(done *stored) {
	if n := done.events + done.letters; n > 0 {
		w.cfg.Metrics.messages.WithLabelValues(w.Name, w.partition.Stream).Add(float64(n))
	}
	if done.letters > 0 {
		w.cfg.Metrics.letters.WithLabelValues(w.Name, w.partition.Stream).Add(float64(done.letters))
	}
	if done.events > 0 {
		w.cfg.Appended(done.partitions, done.events)
	}
}

// admit blocks while folding is too far behind. Meanwhile the messages remain in the broker.
func (w *worker) admit(ctx context.Context, evs []events.Event) error {
	for {
		err := w.cfg.Admit(ctx, evs)
		var behind *backpressure.BehindError
		if !errors.As(err, &behind) {
			return err
		}
		if err := wait.For(ctx, behind.RetryAfter); err != nil {
			return err
		}
	}
}
