package assistant

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/progress"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/replay"
)

// explainInput has the parameters of the tool explain_badge.
type explainInput struct {
	User         string     `json:"user" jsonschema:"The id of the user."`
	At           *time.Time `json:"at,omitempty" jsonschema:"Explain the badge as it was at this time, such as 2026-01-31T23:59:59Z; now if absent."`
	Conversation string     `json:"conversation,omitempty" jsonschema:"Explain only this conversation, even if it has no unread messages."`
	History      bool       `json:"history,omitempty" jsonschema:"Include each event that changed the total."`
	Delivered    int        `json:"delivered,omitempty" jsonschema:"Include the fate of this number of the last delivered messages."`
}

func (s *Server) explainBadge(ctx context.Context, input explainInput) (any, error) {
	if err := checkID("user", input.User); err != nil {
		return nil, err
	}
	if input.Conversation != "" {
		if err := checkID("conversation", input.Conversation); err != nil {
			return nil, err
		}
	}
	if input.Delivered < 0 || input.Delivered > replay.MaxDelivered {
		return nil, fmt.Errorf("delivered must be a number from 0 to %d", replay.MaxDelivered)
	}
	q := replay.Question{Conversation: input.Conversation, History: input.History, Delivered: input.Delivered}
	if input.At != nil {
		q.At = *input.At
	}
	db, err := s.cfg.Cluster.HomeOf(input.User)
	if err != nil {
		return nil, err
	}
	return replay.NewExplainer(db.Pool, db.Log).Explain(ctx, input.User, q)
}

// userInput names a user.
type userInput struct {
	User string `json:"user" jsonschema:"The id of the user."`
}

// verifiedUser is the answer of verify_user.
type verifiedUser struct {
	operations.Verified
	// First has the first maxDifferences differences.
	First []replay.Difference `json:"first"`
}

// maxDifferences is the maximum number of differences in an answer.
const maxDifferences = 100

func (s *Server) verifyUser(ctx context.Context, input userInput) (any, error) {
	if err := checkID("user", input.User); err != nil {
		return nil, err
	}
	meter := progress.New(nil, "verify", nil)
	defer meter.Close()
	answer := verifiedUser{First: []replay.Difference{}}
	db, err := s.cfg.Cluster.HomeOf(input.User)
	if err != nil {
		return nil, err
	}
	answer.Verified, err = operations.Verify(ctx, replay.NewVerifier(db.Pool, db.Log), db.Log, operations.VerifyOptions{Users: []string{input.User}}, meter, func(d replay.Difference) {
		if len(answer.First) < maxDifferences {
			answer.First = append(answer.First, d)
		}
	})
	return answer, err
}

func (s *Server) lag(ctx context.Context, _ struct{}) (any, error) {
	return s.operations.Lag(ctx)
}

const (
	maxPage     = 200
	defaultPage = 50
)

// deadLettersInput has the parameters of the tool dead_letters.
type deadLettersInput struct {
	After    int64 `json:"after,omitempty" jsonschema:"List only dead letters with an id above this id."`
	Limit    int   `json:"limit,omitempty" jsonschema:"The maximum number to list; 50 if absent."`
	Payloads bool  `json:"payloads,omitempty" jsonschema:"Include the payloads, which may have texts of messages."`
}

// deadLettersAnswer is a page of dead letters.
type deadLettersAnswer struct {
	DeadLetters []any `json:"dead_letters"`
}

// deadLetterWithoutPayload is a dead letter without its payload, since the payload may contain the
// text of messages.
type deadLetterWithoutPayload struct {
	ID        int64     `json:"id"`
	Shard     string    `json:"shard,omitempty"`
	Partition *int      `json:"partition,omitempty"`
	Position  string    `json:"position,omitempty"`
	Origin    string    `json:"origin,omitempty"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

func (s *Server) deadLetters(ctx context.Context, input deadLettersInput) (any, error) {
	limit, err := pageLimit(input.Limit)
	if err != nil {
		return nil, err
	}
	letters, err := s.operations.DeadLetters(ctx, input.After, limit)
	answer := deadLettersAnswer{[]any{}}
	for _, whole := range letters {
		if input.Payloads {
			answer.DeadLetters = append(answer.DeadLetters, whole)
		} else {
			answer.DeadLetters = append(answer.DeadLetters, deadLetterWithoutPayload{whole.ID, whole.Shard, whole.Partition, whole.Position, whole.Origin, whole.Reason, whole.At})
		}
	}
	return answer, err
}

// auditInput has the parameters of the tool audit.
type auditInput struct {
	Before int64 `json:"before,omitempty" jsonschema:"List only actions with an id below this id."`
	Limit  int   `json:"limit,omitempty" jsonschema:"The maximum number to list; 50 if absent."`
}

// auditAnswer is a page of the audit trail.
type auditAnswer struct {
	Actions []operations.Entry `json:"actions"`
}

func (s *Server) audit(ctx context.Context, input auditInput) (any, error) {
	limit, err := pageLimit(input.Limit)
	if err != nil {
		return nil, err
	}
	actions, err := s.operations.Audit(ctx, input.Before, limit)
	if actions == nil {
		actions = []operations.Entry{}
	}
	return auditAnswer{actions}, err
}

// letterInput names a dead letter.
type letterInput struct {
	ID int64 `json:"id" jsonschema:"Id of the dead letter."`
}

// retried is the answer of retry_dead_letter.
type retried struct {
	Retried int64 `json:"retried"`
}

func (s *Server) retryDeadLetter(ctx context.Context, input letterInput) (any, error) {
	return retried{input.ID}, s.cfg.Operator.Retry(ctx, input.ID)
}

// discarded is the answer of discard_dead_letter.
type discarded struct {
	Discarded json.RawMessage `json:"discarded"`
}

func (s *Server) discardDeadLetter(ctx context.Context, input letterInput) (any, error) {
	letter, err := s.cfg.Operator.Discard(ctx, input.ID)
	return discarded{letter}, err
}

func checkID(name, id string) error {
	if reason := events.CheckID(id); reason != "" {
		return fmt.Errorf("%s: the id %s", name, reason)
	}
	return nil
}

func pageLimit(limit int) (int, error) {
	if limit == 0 {
		return defaultPage, nil
	}
	if limit < 1 || limit > maxPage {
		return 0, fmt.Errorf("limit must be a number from 1 to %d", maxPage)
	}
	return limit, nil
}
