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
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/pg/pgfault"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed ingest.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// errTaken means that another process has moved the position.
var errTaken = errors.New("another process reads the partition")

// codeTaken is the SQLSTATE of a transaction that fails because the stored position differs from
// the expected position.
const codeTaken = "BD005"

// maxKept is the maximum size, in bytes, of a message that a dead letter contains. A dead letter
// about a larger message has no payload.
const maxKept = 8 << 20

// positionOf has the stored position in one partition of a broker, and the database that stores it.
type positionOf struct {
	pool      *pgxpool.Pool
	log       *events.Log
	broker    string
	partition Partition
	position  string
	// resets counts how often the stream has gone back to an earlier position.
	resets int
	// places has, if there are several databases, the position up to which each partition of the
	// log has stored the messages. It is nil if there is only one database.
	places *places
}

func (p *positionOf) key() []any {
	return []any{p.broker, p.partition.Stream, p.partition.Number, p.partition.Incarnation}
}

// load reads the stored position. retry is true if the database has no position for this stream,
// but has a position for a deleted stream with the same name.
func (p *positionOf) load(ctx context.Context) (retry bool, err error) {
	if p.places != nil {
		return p.loadSharded(ctx)
	}
	return p.loadOne(ctx, p.pool)
}

// notice checks whether the stream went back to an earlier position. If so, notice increments
// resets, so that the positions that were stored before do not apply any more.
func (p *positionOf) notice(b *Batch) {
	first := b.Position
	if len(b.Messages) > 0 {
		first = b.Messages[0].Position
	}
	if first != "" && p.position != "" && isBehind(p.position, first) {
		p.resets++
	}
}

// letter is a message to store as a dead letter.
type letter struct {
	origin, reason string
	payload        []byte
}

// decoded has the events and dead letters of a batch.
type decoded struct {
	events []events.Event
	// positions has, for each event, the position after its message.
	positions []string
	letters   []letter
	// lost has a dead letter about the messages before this batch that the broker deleted before
	// they were read. It is empty if there are no such messages.
	lost []letter
}

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

// origin names a message for operators: its broker, partition and place.
func (p *positionOf) origin(place string) string {
	return fmt.Sprintf("%s/%s/%s", p.broker, p.partition, place)
}

// id returns the id for an event that is published without an id.
func (p *positionOf) id(m *Message) string {
	id := p.origin(m.Place)
	if p.partition.Incarnation != "" {
		id += "@" + p.partition.Incarnation
	}
	return id
}

// reasonOf returns the text of an error without characters that Postgres cannot store.
func reasonOf(err error) string {
	return strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", "\\0"), "\uFFFD")
}

// store runs one transaction that appends the events of a batch, stores invalid messages as dead
// letters, and moves the position. If Postgres refuses the content of a message, store halves the
// batch until this message is alone, and stores the message as a dead letter. If there are several
// databases, store divides the batch by [cluster.SplitAtJoins] and stores one part after the other.
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
		_, text, _ := decode(m, p.id(m)) // decode it again: the message may be in d.events or in d.letters
		letters := []letter{{p.origin(m.Place), reasonOf(err), text}}
		if _, err := p.write(ctx, decoded{letters: letters, lost: d.lost}, 1, b.Position); err != nil {
			return stored{}, err
		}
		return stored{letters: 1}, nil
	}
	return p.storeParts(ctx, b, d.lost, []int{len(b.Messages) / 2, len(b.Messages)})
}

// stages divides a batch into the stages of [cluster.SplitAtJoins]. It returns the end of each
// stage as an index into the messages. If there is only one database, it returns nil.
func (p *positionOf) stages(b *Batch, d decoded) (ends []int) {
	if p.places == nil {
		return nil
	}
	i := 0
	for _, end := range cluster.SplitAtJoins(d.events) {
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

// storeParts stores the parts of a batch one after the other. ends has the end index of each part.
// lost has the dead letter about deleted messages before the batch; it is stored with the first
// part.
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

// stored is the result of storing a batch.
type stored struct {
	// partitions are the partitions of the log that have new events.
	partitions      []int
	events, letters int
}

// storeTimeout bounds one transaction. A transaction takes far less time unless the database is in
// trouble.
const storeTimeout = 30 * time.Second

// write runs one transaction that stores decoded messages and moves the position to `to`. messages
// is the number of messages.
func (p *positionOf) write(ctx context.Context, d decoded, messages int, to string) (events.Receipt, error) {
	// Do not cancel the transaction with ctx: if a commit is interrupted, the caller cannot know
	// whether the commit succeeded.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	receipt, err := p.appendAll(ctx, d, to, func(ctx context.Context, mine ...events.Event) (events.Receipt, error) {
		return p.log.AppendWith(ctx, func(batch *pgx.Batch) {
			batch.Queue(statements.Get("move the position"), append(p.key(), p.position, to, messages, p.resets)...)
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
	p.position = to
	return receipt, nil
}

// storing wraps an error of the transaction that stores messages. It returns errTaken if another
// process moved the position.
func storing(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == codeTaken {
		return errTaken
	}
	return fmt.Errorf("store messages: %w", err)
}

// isOfContent reports whether an error was caused by the content of a message.
func isOfContent(err error) bool {
	var bad *events.BatchError
	if errors.As(err, &bad) {
		return true
	}
	return pgfault.OfContent(err)
}
