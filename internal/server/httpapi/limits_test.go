package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// asEvent returns an event as a Go backend decodes it from JSON, valid or not.
func asEvent(t *testing.T, text string) events.Event {
	t.Helper()
	var given struct {
		ID, Source, Type, TraceParent, TraceState string
		Time                                      time.Time
		Data                                      struct {
			ConversationID   string   `json:"conversation_id"`
			UserIDs          []string `json:"user_ids"`
			Seq              int64    `json:"seq"`
			UpToSeq          int64    `json:"up_to_seq"`
			MentionedUserIDs []string `json:"mentioned_user_ids"`
			Category         string   `json:"category"`
			MessageID        string   `json:"message_id"`
			SenderID         string   `json:"sender_id"`
			Level            string   `json:"level"`
		}
	}
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		t.Fatal(err)
	}
	d := given.Data
	return events.Event{
		ID: given.ID, Source: given.Source, Type: events.Type(given.Type), Time: given.Time,
		TraceParent: given.TraceParent, TraceState: given.TraceState,
		Data: events.Data{
			ConversationID: d.ConversationID, UserIDs: d.UserIDs, Seq: d.Seq, UpToSeq: d.UpToSeq,
			MentionedUserIDs: d.MentionedUserIDs, Category: d.Category,
			MessageID: d.MessageID, SenderID: d.SenderID, Level: events.Level(d.Level),
		},
	}
}

// The ways to publish. Each takes one event and returns the error of a bad
// one, or "".
func overHTTP(t *testing.T, api http.Handler, event string) string {
	t.Helper()
	a := post(t, api, "/v1/events", single, event)
	if a.status == http.StatusAccepted {
		return ""
	}
	var p struct{ Errors []events.FieldError }
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || len(p.Errors) == 0 {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	return (&events.InvalidError{Fields: p.Errors}).Error()
}

func overSQL(t *testing.T, pool *pgxpool.Pool, event string) string {
	t.Helper()
	_, err := pool.Exec(t.Context(), `SELECT badged.publish($1)`, event)
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &pg):
		t.Fatal(err)
	}
	return pg.Message
}

func overGo(t *testing.T, pool *pgxpool.Pool, e events.Event) string {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := events.Publish(t.Context(), tx, e)
		return err
	})
	var bad *events.BatchError
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &bad):
		t.Fatal(err)
	}
	return bad.Events[0].Err.Error()
}

// quoted returns a JSON string of n bytes.
func quoted(n int) string { return `"` + strings.Repeat("x", n) + `"` }

// people returns a JSON array with the same user n times.
func people(n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(`"ada",`, n), ",") + "]"
}

// Every way to publish accepts an event at each limit, and refuses one past it for
// the same field; HTTP and Go with the same message.
func TestLimitsAreTheSameForAllPublishers(t *testing.T) {
	pool := openPool(t, pgtest.NewDB(t, migrated()))
	api, _ := openAPI(t, pool)

	// The defaults of an event's fields.
	const message, read, level, readAll = "message.delivered", "conversation.read", "conversation.level_set", "user.read_all"
	members := map[string]map[string]string{
		message: {"conversation_id": `"c"`, "user_ids": `["ada"]`, "seq": `1`},
		read:    {"conversation_id": `"c"`, "user_ids": `["ada"]`, "up_to_seq": `1`},
		level:   {"conversation_id": `"c"`, "user_ids": `["ada"]`, "level": `"all"`},
		readAll: {"user_ids": `["ada"]`},
	}
	event := func(typ, name, value string) string {
		attributes := map[string]string{"specversion": `"1.0"`, "id": `"1"`, "source": `"test"`, "type": `"` + typ + `"`}
		data := map[string]json.RawMessage{}
		for k, v := range members[typ] {
			data[k] = json.RawMessage(v)
		}
		if field, ok := strings.CutPrefix(name, "data."); ok {
			data[field] = json.RawMessage(value)
		} else {
			attributes[name] = value
		}
		all := map[string]json.RawMessage{}
		for k, v := range attributes {
			all[k] = json.RawMessage(v)
		}
		var err error
		if all["data"], err = json.Marshal(data); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	const noControl = ": must not hold control characters"
	most := func(n int) string { return fmt.Sprintf(": must have at most %d bytes, has %d", n, n+1) }
	// limit is a field's value at a limit, past it, and the error.
	type limit struct{ typ, name, at, past, want string }
	var limits []limit
	for _, text := range []struct {
		typ, name string
		limit     int
		required  bool
	}{
		{message, "id", 256, true},
		{message, "source", 256, true},
		{message, "traceparent", 512, false},
		{message, "tracestate", 512, false},
		{message, "data.conversation_id", 128, true},
		{message, "data.message_id", 128, false},
		{message, "data.sender_id", 128, false},
	} {
		limits = append(limits,
			limit{text.typ, text.name, quoted(text.limit), quoted(text.limit + 1), text.name + most(text.limit)},
			limit{text.typ, text.name, `"\u0020"`, `"\u001f"`, text.name + noControl},
			limit{text.typ, text.name, `"\u00a0"`, `"\u009f"`, text.name + noControl})
		if text.required {
			limits = append(limits, limit{text.typ, text.name, quoted(1), `""`, text.name + ": must not be empty"})
		}
	}
	for _, typ := range []string{message, readAll} {
		const empty = "data.category: must have parts with a slash between each two: it has an empty part"
		limits = append(limits,
			limit{typ, "data.category", quoted(64), quoted(65), "data.category: must have parts of at most 64 characters, has one of 65"},
			limit{typ, "data.category", `"1/2/3/4/5/6/7/8"`, `"1/2/3/4/5/6/7/8/9"`, "data.category: must have at most 8 parts, has 9"},
			limit{typ, "data.category", `"acme/general"`, `"acme//general"`, empty},
			limit{typ, "data.category", `"acme"`, `"/acme"`, empty},
			limit{typ, "data.category", `"acme"`, `"acme/"`, empty},
			limit{
				typ, "data.category", `"` + strings.Repeat(strings.Repeat("x", 63)+"/", 3) + strings.Repeat("x", 63) + `"`,
				`"` + strings.Repeat(strings.Repeat("x", 63)+"/", 3) + strings.Repeat("x", 64) + `"`, "data.category" + most(255),
			},
			limit{typ, "data.category", `"\u00a0"`, `"\u009f"`, "data.category" + noControl})
	}
	limits = append(limits,
		limit{message, "time", `"0001-01-01T00:00:00.000001Z"`, `"0001-01-01T00:00:00+00:01"`, "time: must lie in the years 1 to 9999"},
		limit{message, "time", `"9999-12-31T23:59:59.999999Z"`, `"9999-12-31T23:59:59-00:01"`, "time: must lie in the years 1 to 9999"},
		limit{message, "type", `"message.delivered"`, `"message.\u200b\"delivered\"\u2028"`, `type: "message.\u200b\"delivered\"\u2028" is not a type of event`},
		limit{message, "data.user_ids", `[` + quoted(128) + `]`, `[` + quoted(129) + `]`, "data.user_ids[0]" + most(128)},
		limit{message, "data.user_ids", `["\u0020"]`, `["\u007f"]`, "data.user_ids[0]" + noControl},
		limit{message, "data.user_ids", people(1), `[]`, "data.user_ids: must name at least one user"},
		limit{message, "data.user_ids", people(10_000), people(10_001), "data.user_ids: must name at most 10000 users, names 10001"},
		limit{message, "data.mentioned_user_ids", people(10_000), people(10_001), "data.mentioned_user_ids: must name at most 10000 users, names 10001"},
		limit{message, "data.mentioned_user_ids", people(1), `["a\u00ad\u0085\n"]`, `data.mentioned_user_ids[0]: "a\u00ad\u0085\n" is not among data.user_ids`},
		limit{message, "data.seq", `1`, `0`, "data.seq: must be at least 1, is 0"},
		limit{message, "data.seq", `9223372036854775807`, `-9223372036854775808`, "data.seq: must be at least 1, is -9223372036854775808"},
		limit{read, "data.up_to_seq", `1`, `0`, "data.up_to_seq: must be at least 1, is 0"},
		limit{level, "data.level", `"none"`, `"none\ufeff"`, `data.level: must be one of "default", "all", "mentions", "direct_mentions", "none", is "none\ufeff"`})

	for _, l := range limits {
		at, past := event(l.typ, l.name, l.at), event(l.typ, l.name, l.past)
		what := fmt.Sprintf("%s of %s past %.40s", l.name, l.typ, l.at)
		for way, said := range map[string][2]string{
			"HTTP": {overHTTP(t, api, at), overHTTP(t, api, past)},
			"SQL":  {overSQL(t, pool, at), overSQL(t, pool, past)},
			"Go":   {overGo(t, pool, asEvent(t, at)), overGo(t, pool, asEvent(t, past))},
		} {
			if said[0] != "" {
				t.Errorf("%s, at the limit: %s refuses it: %s", what, way, said[0])
			}
			want := "invalid event: " + l.want
			field, _, _ := strings.Cut(l.want, ": ")
			if said[1] != want && (way != "SQL" || !strings.HasPrefix(said[1], "invalid event: "+field+": ")) {
				t.Errorf("%s: %s says\n%s, want\n%s", what, way, said[1], want)
			}
		}
	}
}
