package erasure

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/badged/badged/internal/devtest/projectortest"
)

// planOf returns how Postgres runs a statement.
func planOf(t *testing.T, d *projectortest.Database, sql string, args ...any) string {
	t.Helper()
	return strings.Join(d.Lines(t, `EXPLAIN (ANALYZE, COSTS off, TIMING off) `+sql, args...), "\n")
}

// An export and an erasure read the dead letters, settled letters and records of the audit
// trail that may name the user, however many others there are.
func TestTextsOfAUserAreFoundByTheirIndex(t *testing.T) {
	d := projectortest.New(t)
	d.Exec(t, `INSERT INTO badged.dead_letters (origin, payload, reason)
SELECT 'a broker', convert_to(json_build_object('data', json_build_object('user_ids', json_build_array('user-' || n)))::text, 'UTF8'), 'event "e' || n || '" is unknown' FROM generate_series(1, 3000) AS n`)
	d.Exec(t, `INSERT INTO badged.settled_letters (partition_id, transaction_id, "offset", index, user_ids)
SELECT 0, '7', n, 0, CASE WHEN n % 2 = 0 THEN ARRAY['user-' || n] END FROM generate_series(1, 3000) AS n`)
	d.Exec(t, `INSERT INTO badged.audit (who, via, action, arguments) SELECT 'ops', 'api', 'user.explain', json_build_object('user', 'user-' || n) FROM generate_series(1, 1000) AS n`)
	d.Exec(t, `INSERT INTO badged.audit_ends (audit_id, error) SELECT id, 'user "end-' || id || '" is unknown' FROM badged.audit`)
	d.Exec(t, `INSERT INTO badged.webhooks (generation, batch, rate, name, url, state, secrets, events) VALUES (2, 1, 0, 'crm', 'https://crm.example', 'active', '{}', '{badge.changed}')`)
	d.Exec(t, `INSERT INTO badged.webhook_queue (changes, queued_at, attempts, partition_id, webhook, type, subject) SELECT 1, now(), 0, 0, 'crm', 'badge.changed', 'user-' || n FROM generate_series(1, 3000) AS n`)
	d.Exec(t, `ANALYZE badged.dead_letters, badged.settled_letters, badged.audit, badged.audit_ends, badged.webhook_queue`)
	user := "user-472"
	for sql, args := range map[string][]any{
		statements.Get("read the texts"):                      {user},
		statements.Get("read the other tables"):               {user},
		statements.Get("read dead letters"):                   {user, nil},
		statements.Get("erase the user from settled letters"): {user},
	} {
		if got := planOf(t, d, sql, args...); strings.Contains(got, "Seq Scan on dead_letters") || strings.Contains(got, "Seq Scan on settled_letters") ||
			strings.Contains(got, "Seq Scan on audit") || strings.Contains(got, "Seq Scan on webhook_queue") {
			t.Errorf("%s:\n%s", sql, got)
		}
	}
	for sql, want := range map[string]int{
		`SELECT kind FROM (` + statements.Get("read the texts") + `) AS texts (kind, record)`:                             2, // the settled letter was erased by its plan
		`SELECT id::text FROM (` + strings.Replace(statements.Get("read dead letters"), "$2", "NULL", 1) + `) AS letters`: 1,
	} {
		if got := d.Lines(t, sql, user); len(got) != want {
			t.Errorf("%s finds %d rows %v, want %d", sql, len(got), got, want)
		}
	}
}

// Whatever ids and payloads look like, a dead letter that names the user is found.
func TestLettersThatNameAUser(t *testing.T) {
	d := projectortest.New(t)
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	inJSON := func(value any) []byte {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for n, id := range []string{"ada", "a", "zoë", "日本", `the "ghost"`, `back\slash`, "{brace", "a b", ":", "<b>", "tab\t", "\u007f"} {
		for what, letter := range map[string]struct {
			payload []byte
			reason  string
			users   []string
		}{
			"the event":           {inJSON(map[string]any{"data": map[string]any{"user_ids": []string{"x", id}}}), "", nil},
			"a member":            {inJSON(map[string]any{id: 1}), "", nil},
			"UTF-8":               {[]byte(`["é",` + string(quoted(id)) + `]`), "", nil},
			"text in JSON":        {inJSON([]any{"user " + strconv.Quote(id)}), "", nil},
			"broken JSON":         {append([]byte("{"), quoted(id)...), "", nil},
			"all of the payload":  {[]byte(id), "", nil},
			"bytes":               {append([]byte{0, 0xff}, quoted(id)...), "", nil},
			"a compressed row":    {encoder.EncodeAll(inJSON([]string{id}), nil), "", nil},
			"the reason":          {[]byte("{}"), fmt.Sprintf("user %q is unknown", id), nil},
			"the reason, no more": {nil, "user " + string(quoted(id)) + " is unknown", nil},
			"all of the reason":   {nil, id, nil},
			"the users":           {nil, "", []string{"x", id}},
		} {
			var number string
			if err := d.Pool.QueryRow(t.Context(), `INSERT INTO badged.dead_letters (origin, payload, reason, user_ids) VALUES ('a broker', $1, $2, $3) RETURNING id::text`,
				letter.payload, letter.reason, letter.users).Scan(&number); err != nil {
				t.Fatal(err)
			}
			if !namedIn(payloadOf(letter.payload), id) && !mentions(letter.reason, id) && !slices.Contains(letter.users, id) {
				t.Errorf("%s: %q is not named", what, id)
			}
			found := d.Lines(t, `SELECT id::text FROM (`+strings.Replace(statements.Get("read dead letters"), "$2", "NULL", 1)+`) AS letters`, id)
			if !slices.Contains(found, number) {
				t.Errorf("id %d, %q, is not found by %s", n, id, what)
			}
			d.Exec(t, `DELETE FROM badged.dead_letters`)
		}
	}
}
