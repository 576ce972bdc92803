package erasure

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pg/query"
)

// erased replaces the user id in texts of jobs and dead letters.
const erased = "(erased)"

// letters erases the user from the dead letters of a partition. If partition is nil, it erases
// the user from dead letters that came from a broker, which have no partition. In both cases
// it also erases the user from all dead letters that were retried or discarded before.
func (e *eraser) letters(ctx context.Context, tx pgx.Tx, partition *int) error {
	w := rewriter{userID: e.cfg.UserID}
	var writes pgx.Batch
	var id int64
	var payload []byte
	var reason string
	var users []string
	if err := query.Each(ctx, tx, "read dead letters", statements.Get("read dead letters"), []any{e.cfg.UserID, partition}, []any{&id, &payload, &reason, &users}, func() error {
		rest, changed, err := w.record(&events.Record{Payload: payload})
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(slices.Clone(users), func(user string) bool { return user == e.cfg.UserID })
		text := TextWithout(reason, e.cfg.UserID)
		switch {
		case changed && string(rest) == "null", len(users) > 0 && len(others) == 0:
			writes.Queue(statements.Get("erase a dead letter"), id)
		case changed, text != reason, len(others) < len(users):
			if payload == nil {
				rest = nil
			}
			writes.Queue(statements.Get("rewrite a dead letter"), id, rest, text, others)
		default:
			return nil
		}
		e.result.DeadLetters++
		return nil
	}); err != nil {
		return err
	}
	writes.Queue(statements.Get("erase the user from settled letters"), e.cfg.UserID)
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return fmt.Errorf("erase the user from dead letters: %w", err)
	}
	return nil
}

// TextWithout replaces the id in a text by "(erased)", wherever the id is in quotes. If the whole
// text is the id, it returns (erased).
func TextWithout(text, id string) string {
	if text == id {
		return erased
	}
	return strings.NewReplacer(strconv.Quote(id), `"`+erased+`"`, string(quoted(id)), `"`+erased+`"`).Replace(text)
}

// jobs erases the user from the jobs of operators.
func (e *eraser) jobs(ctx context.Context, tx pgx.Tx) error {
	var writes pgx.Batch
	var id int
	var texts [3][]byte // arguments, progress and result
	var failed *string
	if err := query.Each(ctx, tx, "read jobs", statements.Get("read jobs"), nil, []any{&id, &texts[0], &texts[1], &texts[2], &failed}, func() error {
		changed := false
		written := make([]any, 0, len(texts)+1)
		for _, text := range texts {
			rest, differs, err := JSONWithout(text, e.cfg.UserID)
			if err != nil {
				return fmt.Errorf("job %d: %w", id, err)
			}
			written, changed = append(written, rest), changed || differs
		}
		if failed != nil {
			rest := TextWithout(*failed, e.cfg.UserID)
			written, changed = append(written, &rest), changed || rest != *failed
		} else {
			written = append(written, nil)
		}
		if changed {
			writes.Queue(statements.Get("rewrite a job"), append([]any{id}, written...)...)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return fmt.Errorf("erase the user from jobs: %w", err)
	}
	return nil
}

// JSONWithout replaces an id in the strings of a JSON text, as TextWithout does. changed
// reports whether the text contained the id; if not, rest is the same text. If text is nil,
// rest is nil.
func JSONWithout(text []byte, id string) (rest *string, changed bool, err error) {
	if text == nil {
		return nil, false, nil
	}
	value := payloadOf(text)
	if !namedIn(value, id) {
		same := string(text)
		return &same, false, nil
	}
	encoded, err := encode(valueWithout(value, id))
	all := string(encoded)
	return &all, true, err
}

func valueWithout(value any, id string) any {
	switch v := value.(type) {
	case string:
		return TextWithout(v, id)
	case []any:
		for i := range v {
			v[i] = valueWithout(v[i], id)
		}
	case map[string]any:
		members := make(map[string]any, len(v))
		for name, member := range v {
			members[TextWithout(name, id)] = valueWithout(member, id)
		}
		return members
	case json.Number:
	}
	return value
}
