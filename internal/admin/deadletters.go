package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/projector/deadletters"
)

// DeadLetter is a dead letter in the form for operators.
type DeadLetter struct {
	ID        int64           `json:"id" doc:"The id of the dead letter."`
	Shard     string          `json:"shard,omitempty" doc:"The shard that has it; absent without shards."`
	Partition *int            `json:"partition,omitempty" doc:"The partition of the log. Not for a message of a broker."`
	Position  string          `json:"position,omitempty" doc:"The position of the event in the log, such as 1234/56, or 1234/56/7 in a row with several events. Not for a message of a broker."`
	Origin    string          `json:"origin,omitempty" doc:"Where a message of a broker was, such as kafka/chat/3/1045. Not for an event in the log."`
	Payload   json.RawMessage `json:"payload" doc:"The event as it was in the log or in the message; null if it was empty, too large, or no JSON."`
	Raw       string          `json:"payload_base64,omitempty" doc:"What was there, in base64, if it is no JSON."`
	Reason    string          `json:"reason" doc:"Why it could not be decoded."`
	At        time.Time       `json:"at" doc:"When it was put aside."`
}

// NewDeadLetter returns l in the form for operators.
func NewDeadLetter(l deadletters.Letter) DeadLetter {
	letter := DeadLetter{ID: l.ID, Origin: l.Origin, Payload: l.Payload, Reason: l.Reason, At: l.At.UTC()}
	if l.Origin == "" {
		letter.Partition, letter.Position = &l.Partition, l.Place.String()
	}
	if !eventbatch.IsJSON(l.Payload) {
		letter.Payload, letter.Raw = nil, base64.StdEncoding.EncodeToString(l.Payload)
	}
	return letter
}

// oneDeadLetter are the arguments of an action on one dead letter.
type oneDeadLetter struct {
	ID int64 `json:"id"`
}

// RetryDeadLetter publishes a dead letter again for an operator; see
// [deadletters.Letters.Retry].
func RetryDeadLetter(ctx context.Context, db DB, letters *deadletters.Letters, by Operator, id int64) (receipt events.Receipt, err error) {
	err = Audited(ctx, db, by, "deadletters.retry", oneDeadLetter{id}, func(ctx context.Context) (any, error) {
		receipt, err = letters.Retry(ctx, id)
		return nil, err
	})
	return receipt, err
}

// DiscardDeadLetter deletes a dead letter for an operator. The audit trail
// gets a copy before. See [deadletters.Letters.Discard].
func DiscardDeadLetter(ctx context.Context, db DB, letters *deadletters.Letters, by Operator, id int64) (letter DeadLetter, err error) {
	var arguments any = oneDeadLetter{id}
	switch l, err := letters.Find(ctx, id); {
	case err == nil:
		arguments = NewDeadLetter(l)
	case !errors.Is(err, deadletters.ErrNotFound): // the trail records it too
		return DeadLetter{}, err
	}
	err = Audited(ctx, db, by, "deadletters.discard", arguments, func(ctx context.Context) (any, error) {
		l, err := letters.Discard(ctx, id)
		letter = NewDeadLetter(l)
		return nil, err
	})
	return letter, err
}
