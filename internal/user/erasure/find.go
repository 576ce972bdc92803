// Package erasure finds all data of a user, and exports or erases it.
//
// It does not know the projector's loop, tokens or HTTP. ADR 76 has the reasons.
package erasure

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/log/eventbatch"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed erasure.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// eachRow reads the rows of a partition's log that come after a position and may name a user,
// in order. It calls visit with the events of each row. visit must not use q.
func eachRow(ctx context.Context, q events.Querier, partition int, userID string, after events.Position, visit func([]events.Record) error) error {
	return scan(ctx, q, partition, visit, statements.Of(partition, "find rows"), userID, after.TransactionID, after.Offset)
}

// eachLateRow is like eachRow, but reads the rows that the given transactions have appended,
// at any position.
func eachLateRow(ctx context.Context, q events.Querier, partition int, userID string, transactions []int64, visit func([]events.Record) error) error {
	if len(transactions) == 0 {
		return nil
	}
	return scan(ctx, q, partition, visit, statements.Of(partition, "find late rows"), userID, transactions)
}

func scan(ctx context.Context, q events.Querier, partition int, visit func([]events.Record) error, sql string, args ...any) error {
	rows, _ := q.Query(ctx, strings.ReplaceAll(sql, "COLUMNS", logread.Columns), args...)
	if err := logread.Scan(rows, visit); err != nil {
		return fmt.Errorf("search partition %d of the log: %w", partition, err)
	}
	return nil
}

// shareOf returns an event from which all users are removed, except the given user and the
// sender. It reports whether the event names the user. If the event cannot be decoded, shareOf
// removes list elements from its JSON instead: see the function keepUser.
func shareOf(r *events.Record, userID string) (share any, ok bool) {
	if !mayName(r.Payload, userID) {
		return nil, false
	}
	e, err := events.Decode(r.Payload)
	if err != nil || r.Damage != nil {
		v := payloadOf(r.Payload)
		return keepUser(v, userID), namedIn(v, userID)
	}
	d := &e.Data
	alone := func(ids []string) []string {
		if slices.Contains(ids, userID) {
			return []string{userID}
		}
		return nil
	}
	if d.UserIDs, d.MentionedUserIDs = alone(d.UserIDs), alone(d.MentionedUserIDs); d.UserIDs == nil && d.MentionedUserIDs == nil && d.SenderID != userID {
		return nil, false
	}
	return e, true
}

// mayName reports whether a payload may contain an id, as it is or with JSON escapes.
func mayName(payload []byte, userID string) bool {
	return bytes.Contains(payload, []byte(userID)) || bytes.IndexByte(payload, '\\') >= 0
}

// payloadOf returns a payload decoded from JSON, or the payload itself if it is not JSON.
func payloadOf(payload []byte) any {
	text, err := eventbatch.Plain(payload)
	if err != nil || !eventbatch.IsJSON(text) {
		return payload
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // seqs do not fit into floats
	if err := decoder.Decode(&value); err != nil {
		return payload
	}
	return value
}

// keepUser removes, from all lists in a JSON value, the elements that do not contain the id of the
// given user.
func keepUser(value any, userID string) any {
	switch v := value.(type) {
	case []any:
		kept := []any{}
		for _, element := range v {
			if namedIn(element, userID) {
				kept = append(kept, keepUser(element, userID))
			}
		}
		return kept
	case map[string]any:
		kept := make(map[string]any, len(v))
		for name, member := range v {
			kept[name] = keepUser(member, userID)
		}
		return kept
	}
	return value
}

// namedIn reports whether a JSON value contains an id: as a string, in quotes within a string, or
// as the name of a member.
func namedIn(value any, userID string) bool {
	switch v := value.(type) {
	case string:
		return mentions(v, userID)
	case []byte:
		return mentions(string(v), userID)
	case []any:
		return slices.ContainsFunc(v, func(element any) bool { return namedIn(element, userID) })
	case map[string]any:
		for name, member := range v {
			if mentions(name, userID) || namedIn(member, userID) {
				return true
			}
		}
	}
	return false
}

// mentions reports whether a text is an id, or contains the id in quotes, as error messages
// do.
func mentions(text, id string) bool {
	return text == id || strings.Contains(text, strconv.Quote(id)) || strings.Contains(text, string(quoted(id)))
}

// quoted returns an id as a JSON string.
func quoted(id string) []byte {
	b, _ := jsontext.AppendQuote(nil, id) // ids are valid UTF-8
	return b
}

// encode encodes a value as JSON without escaping HTML.
func encode(value any) (json.RawMessage, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("encode a record: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
