package ingest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/appending"
	"github.com/badged/badged/internal/pgfault"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/internal/sqlfile"
)

//go:embed ingest.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// errTaken is returned if another process has read on.
var errTaken = errors.New("another process reads the partition")

// codeTaken is the code of the error of a transaction whose position is not the stored
// one.
const codeTaken = "BD005"

// maxKept is the largest message, in bytes, that is kept in a dead letter.
const maxKept = 8 << 20

// positionOf is the position of a partition in the database.
type positionOf struct {
	pool      *pgxpool.Pool
	log       *events.Log
	broker    string
	partition Partition
	at        string
	// resets is how often the stream went back.
	resets int
	// places are nil with one database.
	places *places
}

func (p *positionOf) key() []any {
	return []any{p.broker, p.partition.Stream, p.partition.Number, p.partition.Incarnation}
}

// load reads the position. again is whether the partition is new and another of the same
// name was read before.
func (p *positionOf) load(ctx context.Context) (again bool, err error) {
	if p.places != nil {
		return p.loadSharded(ctx)
	}
	return p.loadOne(ctx, p.pool)
}

// notice notes that a stream that went back is another from now on: what partitions of the
// log have of it is not known.
func (p *positionOf) notice(b *Batch) {
	first := b.Position
	if len(b.Messages) > 0 {
		first = b.Messages[0].Position
	}
	if first != "" && p.at != "" && isBehind(p.at, first) {
		p.resets++
	}
}

// letter is a message that becomes a dead letter.
type letter struct {
	origin, reason string
	payload        []byte
}

// decoded are messages as they are stored.
type decoded struct {
	events []events.Event
	// positions are those behind the messages of events.
	positions []string
	letters   []letter
	// lost is about messages that the broker deleted before these.
	lost []letter
}

// decode decodes messages.
func (p *positionOf) decode(messages []Message) decoded {
	d := decoded{events: make([]events.Event, 0, len(messages))}
	for i := range messages {
		e, text, err := decode(&messages[i], p.id(&messages[i]))
		if err != nil {
			d.letters = append(d.letters, letter{p.origin(messages[i].Place), reasonOf(err), text})
			continue
		}
		d.events, d.positions = append(d.events, e), append(d.positions, messages[i].Position)
	}
	return d
}

// origin returns where a message is, as people read it.
func (p *positionOf) origin(place string) string {
	return fmt.Sprintf("%s/%s/%s", p.broker, p.partition, place)
}

// id returns the id of an event whose message has none.
func (p *positionOf) id(m *Message) string {
	id := p.origin(m.Place)
	if p.partition.Incarnation != "" {
		id += "@" + p.partition.Incarnation
	}
	return id
}

// reasonOf returns a reason without what Postgres cannot store.
func reasonOf(err error) string {
	return strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", "\\0"), "\uFFFD")
}

// store appends the events of a batch, buries what is no event, and moves the position,
// in one transaction. If Postgres refuses what is in a message, that is buried too: the
// batch is cut in halves until it is alone. For several shards, it is cut into stages.
func (p *positionOf) store(ctx context.Context, b *Batch, d decoded) (stored, error) {
	if ends := p.stages(b, d); len(ends) > 1 {
		return p.storeParts(ctx, b, d.lost, ends)
	}
	receipt, err := p.write(ctx, d, len(b.Messages), b.Position)
	if err == nil {
		return stored{receipt.Partitions, len(d.events), len(d.letters)}, nil
	}
	if !isOfContent(err) || len(b.Messages) == 0 {
		return stored{}, err
	}
	if len(b.Messages) == 1 {
		m := &b.Messages[0]
		_, text, _ := decode(m, p.id(m)) // d.letters would be of the same message
		letters := []letter{{p.origin(m.Place), reasonOf(err), text}}
		if _, err := p.write(ctx, decoded{letters: letters, lost: d.lost}, 1, b.Position); err != nil {
			return stored{}, err
		}
		return stored{letters: 1}, nil
	}
	return p.storeParts(ctx, b, d.lost, []int{len(b.Messages) / 2, len(b.Messages)})
}

// stages returns where the stages of a batch end, as indexes of messages.
func (p *positionOf) stages(b *Batch, d decoded) (ends []int) {
	if p.places == nil {
		return nil
	}
	i := 0
	for _, end := range shards.SplitAtJoins(d.events) {
		if end == len(d.events) {
			return append(ends, len(b.Messages))
		}
		for b.Messages[i].Position != d.positions[end] {
			i++
		}
		ends = append(ends, i)
	}
	return ends
}

// storeParts stores the parts of a batch that end at some messages, one after the other. lost
// is about messages before the first.
func (p *positionOf) storeParts(ctx context.Context, b *Batch, lost []letter, ends []int) (all stored, err error) {
	began := 0
	for _, end := range ends {
		one := Batch{Messages: b.Messages[began:end], Position: b.Messages[end-1].Position}
		if end == len(b.Messages) {
			one.Position = b.Position
		}
		part := p.decode(one.Messages)
		if began == 0 {
			part.lost = lost
		}
		began = end
		done, err := p.store(ctx, &one, part)
		all.partitions = append(all.partitions, done.partitions...)
		all.events += done.events
		all.letters += done.letters
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// stored is what a batch became.
type stored struct {
	// partitions of the log have new events.
	partitions      []int
	events, letters int
}

// storeTimeout bounds one transaction. A healthy database takes far less.
const storeTimeout = 30 * time.Second

// write stores decoded messages in one transaction and moves the position.
func (p *positionOf) write(ctx context.Context, d decoded, messages int, to string) (events.Receipt, error) {
	// Finish what was begun: an interrupted commit leaves the outcome unknown.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	receipt, err := p.appendAll(ctx, d, to, func(ctx context.Context, mine ...events.Event) (events.Receipt, error) {
		return appending.With(ctx, p.log, func(batch *pgx.Batch) {
			batch.Queue(statements.Get("move the position"), append(p.key(), p.at, to, messages, p.resets)...)
			if letters := slices.Concat(d.lost, d.letters); len(letters) > 0 {
				var origins, reasons []string
				var payloads [][]byte
				for _, l := range letters {
					if len(l.payload) == 0 || len(l.payload) > maxKept {
						l.payload = nil
					}
					origins, payloads, reasons = append(origins, l.origin), append(payloads, l.payload), append(reasons, l.reason)
				}
				batch.Queue(statements.Get("bury messages"), origins, payloads, reasons)
			}
		}, mine...)
	})
	if err != nil {
		return receipt, storing(err)
	}
	p.at = to
	return receipt, nil
}

// storing returns the error of a transaction that stores.
func storing(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == codeTaken {
		return errTaken
	}
	return fmt.Errorf("store messages: %w", err)
}

// isOfContent reports whether an error is due to what is in messages.
func isOfContent(err error) bool {
	var bad *events.BatchError
	if errors.As(err, &bad) {
		return true
	}
	return pgfault.OfContent(err)
}
