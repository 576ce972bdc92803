// Package erasure finds everything that badged holds of a user, to export or to erase it.
//
// It does not know the loop that folds, tokens or HTTP. ADR 76 has the reasons.
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
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventbatch"
	"github.com/badged/badged/internal/sqlfile"
	"github.com/badged/badged/projector/internal/logread"
)

//go:embed erasure.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// eachRow reads the log of a partition behind a position, in order, and calls visit with
// the events of each row that may name a user. visit must not use q.
func eachRow(ctx context.Context, q events.Querier, partition int, userID string, after events.Position, visit func([]events.Record) error) error {
	sql := strings.ReplaceAll(statements.Of(partition, "find rows"), "COLUMNS", logread.Columns)
	rows, err := q.Query(ctx, sql, userID, after.TransactionID, after.Offset)
	return scan(rows, err, partition, visit)
}

// eachLateRow does what eachRow does with the rows of some transactions.
func eachLateRow(ctx context.Context, q events.Querier, partition int, userID string, transactions []int64, visit func([]events.Record) error) error {
	if len(transactions) == 0 {
		return nil
	}
	sql := strings.ReplaceAll(statements.Of(partition, "find late rows"), "COLUMNS", logread.Columns)
	rows, err := q.Query(ctx, sql, userID, transactions)
	return scan(rows, err, partition, visit)
}

func scan(rows pgx.Rows, err error, partition int, visit func([]events.Record) error) error {
	if err == nil {
		err = logread.Scan(rows, visit)
	}
	if err != nil {
		return fmt.Errorf("search partition %d of the log: %w", partition, err)
	}
	return nil
}

// shareOf returns what of an event concerns a user, without other users but its sender,
// and whether anything does. An event that cannot be decoded is returned as it is.
func shareOf(r *events.Record, userID string) (share any, ok bool) {
	if !mayName(r.Payload, userID) {
		return nil, false
	}
	e, err := events.Decode(r.Payload)
	if err != nil || r.Damage != nil {
		v := payloadOf(r.Payload)
		return only(v, userID), namedIn(v, userID)
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

// mayName reports whether a payload may contain an id: as it is, or written with
// escapes.
func mayName(payload []byte, userID string) bool {
	return bytes.Contains(payload, []byte(userID)) || bytes.IndexByte(payload, '\\') >= 0
}

// payloadOf returns a payload as a value of JSON, or as it is if it is none.
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

// only returns a value of JSON in whose lists is nothing that does not name a user.
func only(value any, userID string) any {
	switch v := value.(type) {
	case []any:
		kept := []any{}
		for _, element := range v {
			if namedIn(element, userID) {
				kept = append(kept, only(element, userID))
			}
		}
		return kept
	case map[string]any:
		kept := make(map[string]any, len(v))
		for name, member := range v {
			kept[name] = only(member, userID)
		}
		return kept
	}
	return value
}

// namedIn reports whether an id is in a value of JSON: as a string, quoted in the text of
// one, or as the name of a member.
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

// mentions reports whether a text is an id, or quotes it as messages of errors do.
func mentions(text, id string) bool {
	return text == id || strings.Contains(text, strconv.Quote(id)) || strings.Contains(text, string(quoted(id)))
}

// quoted returns an id as it is in JSON.
func quoted(id string) []byte {
	b, _ := jsontext.AppendQuote(nil, id) // ids are valid UTF-8
	return b
}

// encode returns a value as JSON, with the characters of HTML as they are.
func encode(value any) (json.RawMessage, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("encode what is exported: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
