package operations

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/operations/deadletters"
)

// DeadLetter is a dead letter as operators see it.
type DeadLetter struct {
	ID        int64           `json:"id" doc:"The id of the dead letter."`
	Shard     string          `json:"shard,omitempty" doc:"The name of the shard that stores it; absent if there are no shards."`
	Partition *int            `json:"partition,omitempty" doc:"The partition of the log; absent for a message of a broker."`
	Position  string          `json:"position,omitempty" doc:"The position of the event in the log, such as 1234/56, or 1234/56/7 in a row with several events; absent for a message of a broker."`
	Origin    string          `json:"origin,omitempty" doc:"The place of the message in the broker, such as kafka/chat/3/1045; absent for an event in the log."`
	Payload   json.RawMessage `json:"payload" doc:"The event, as in the log or in the message; null if it was empty, too large, or not JSON."`
	Raw       string          `json:"payload_base64,omitempty" doc:"The content of the row or message in base64, if it is not JSON."`
	Reason    string          `json:"reason" doc:"Why the event could not be decoded."`
	At        time.Time       `json:"at" doc:"When the event became a dead letter."`
}

func newDeadLetter(s *cluster.Database, l deadletters.Letter) DeadLetter {
	letter := DeadLetter{ID: l.ID, Shard: s.Name, Origin: l.Origin, Payload: l.Payload, Reason: l.Reason, At: l.At.UTC()}
	if l.Origin == "" {
		letter.Partition, letter.Position = &l.Partition, l.Place.String()
	}
	if !eventbatch.IsJSON(l.Payload) {
		letter.Payload, letter.Raw = nil, base64.StdEncoding.EncodeToString(l.Payload)
	}
	return letter
}

// DeadLetters returns up to `limit` dead letters whose ids are greater than `after`, in the order
// of their ids. Dead letters in databases that are unavailable are missing.
func (o *Operations) DeadLetters(ctx context.Context, after int64, limit int) ([]DeadLetter, error) {
	databases, err := o.cfg.Cluster.Available()
	if err != nil {
		return nil, err
	}
	return merged(ctx, databases, limit,
		func(a, b DeadLetter) int { return cmp.Compare(a.ID, b.ID) },
		func(l DeadLetter) int { return len(l.Payload) + len(l.Raw) + len(l.Reason) },
		func(ctx context.Context, s *cluster.Database, last *DeadLetter) ([]DeadLetter, error) {
			from := after
			if last != nil {
				from = last.ID
			}
			page, err := deadletters.New(s.Pool, s.Log).List(ctx, from, limit)
			shown := make([]DeadLetter, len(page))
			for i, l := range page {
				shown[i] = newDeadLetter(s, l)
			}
			return shown, err
		})
}

// oneDeadLetter has the arguments that the trail records for an action on one dead letter.
type oneDeadLetter struct {
	ID int64 `json:"id"`
}

// RetryDeadLetter publishes a dead letter again as a new event; see [deadletters.Letters.Retry].
func (o *Operations) RetryDeadLetter(ctx context.Context, operator Operator, id int64) error {
	s, _, err := o.findDeadLetter(ctx, id)
	if s == nil {
		return err
	}
	letters := deadletters.New(s.Pool, s.Log)
	if !s.HasAll() {
		letters = letters.PublishingTo(o.cfg.Append)
	}
	return Audited(ctx, s.Pool, operator, "deadletters.retry", oneDeadLetter{id}, func(ctx context.Context) (any, error) {
		receipt, err := letters.Retry(ctx, id)
		if err == nil {
			o.cfg.Wake(receipt.Partitions)
		}
		return nil, err
	})
}

// DiscardDeadLetter copies a dead letter to the audit trail, deletes it and returns it. See
// [deadletters.Letters.Discard].
func (o *Operations) DiscardDeadLetter(ctx context.Context, operator Operator, id int64) (letter DeadLetter, err error) {
	s, found, err := o.findDeadLetter(ctx, id)
	if s == nil {
		return DeadLetter{}, err
	}
	var arguments any = found
	if err != nil { // the audit trail records the failed attempt too
		arguments = oneDeadLetter{id}
	}
	err = Audited(ctx, s.Pool, operator, "deadletters.discard", arguments, func(ctx context.Context) (any, error) {
		l, err := deadletters.New(s.Pool, s.Log).Discard(ctx, id)
		letter = newDeadLetter(s, l)
		return nil, err
	})
	return letter, err
}

// findDeadLetter searches all databases for a dead letter, by the function `searched`. If no
// database has it, the error is [deadletters.ErrNotFound].
func (o *Operations) findDeadLetter(ctx context.Context, id int64) (*cluster.Database, DeadLetter, error) {
	return searched(o.cfg.Cluster, deadletters.ErrNotFound, func(s *cluster.Database) (DeadLetter, error) {
		l, err := deadletters.New(s.Pool, s.Log).Find(ctx, id)
		return newDeadLetter(s, l), err
	})
}
