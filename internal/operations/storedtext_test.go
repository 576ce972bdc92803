package operations_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/operations"
)

// unreadable are texts that Postgres refuses as text, or stores in JSON but cannot read from it.
// raw is the text as JSON.
var unreadable = map[string]struct {
	text string
	raw  json.RawMessage
}{
	"a NUL":                      {"a\x00b", json.RawMessage(`"a\u0000b"`)},
	"bytes that are not UTF-8":   {"a\xffb", json.RawMessage("\"a\xffb\"")},
	"the first half of a pair":   {"a\xed\xa0\xbdb", json.RawMessage(`"a\ud83db"`)},
	"the second half of a pair":  {"a\xed\xb8\x80b", json.RawMessage(`"a\uDE00b"`)},
	"two first halves of a pair": {"a\xed\xa0\xbdb", json.RawMessage(`"a\ud83d\uD83Db"`)},
}

// Whatever the arguments, the result and the error of an action are, Postgres can read what the
// trail stores.
func TestTheTrailStoresTextThatPostgresReads(t *testing.T) {
	d := newDatabase(t)
	loads := operations.NewKeyLoads(d.pool, slog.New(slog.DiscardHandler))
	ran := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ran <- loads.Run(ctx) }()
	for what, u := range unreadable {
		t.Run(what, func(t *testing.T) {
			errFails := errors.New(u.text)
			arguments := map[string]any{u.text: u.text, "raw": u.raw}
			operator := operations.Operator{Name: u.text, Via: operations.ViaAPI}
			if err := operations.Audited(t.Context(), d.pool, operator, "heal", arguments, func(context.Context) (any, error) {
				return arguments, errFails
			}); !errors.Is(err, errFails) || err.Error() != errFails.Error() {
				t.Errorf("an action fails with %v", err)
			}
			if err := d.operations.Read(t.Context(), operator, operations.ReadUser, arguments); err != nil {
				t.Errorf("a read of a server fails with %v", err)
			}
			if _, err := operations.RecordRead(t.Context(), d.pool, operations.ReadUser, arguments); err != nil {
				t.Errorf("a read of a command fails with %v", err)
			}
			if err := operations.RecordDisconnect(t.Context(), d.pool, operator, u.text, time.Time{}); err != nil {
				t.Errorf("a disconnect fails with %v", err)
			}
			loads.Loaded(operations.KeyLoad{Keys: []string{u.text}, Added: []string{u.text}})
		})
	}
	stop()
	if err := <-ran; err != nil {
		t.Errorf("changes of keys: %v", err)
	}
	for table, want := range map[string]int{"audit": 5 * len(unreadable), "audit_ends": 5 * len(unreadable)} {
		rows, _ := d.pool.Query(t.Context(), `SELECT to_jsonb(a)::text FROM badged.`+table+` AS a`)
		if got, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(got) != want {
			t.Errorf("%s has %d records that Postgres can read, want %d: %v", table, len(got), want, err)
		}
	}
}

// Text that Postgres can read stays as it is, also a surrogate pair and an escaped backslash.
func TestTheTrailKeepsOtherText(t *testing.T) {
	d := newDatabase(t)
	const raw = `{"a":"\ud83d\ude00 \\u0000 \" \u00e9 é","n":1e400}`
	if err := d.operations.Read(t.Context(), ops, operations.ReadUser, json.RawMessage(raw)); err != nil {
		t.Fatal(err)
	}
	entries, err := d.operations.Audit(t.Context(), 0, 1)
	if err != nil || len(entries) != 1 || string(entries[0].Arguments) != raw {
		t.Errorf("the trail has %s, %v, want %s", entries[0].Arguments, err, raw)
	}
}

// A dead letter with a NUL can be discarded, and the trail then has a copy that Postgres can read.
func TestDiscardADeadLetterWithANUL(t *testing.T) {
	d := newDatabase(t)
	var id int64
	if err := d.pool.QueryRow(t.Context(), `INSERT INTO badged.dead_letters (origin, payload, reason) VALUES ('kafka/chat/3/1045', $1, 'a NUL') RETURNING id`,
		[]byte(`{"id":"a\u0000b"}`)).Scan(&id); err != nil {
		t.Fatal(err)
	}
	if _, err := d.operations.DiscardDeadLetter(t.Context(), ops, id); err != nil {
		t.Fatal(err)
	}
	var copied string
	if err := d.pool.QueryRow(t.Context(), `SELECT arguments #>> '{payload,id}' FROM badged.audit`).Scan(&copied); err != nil || copied != "a\ufffdb" {
		t.Errorf("the copy is %q, %v", copied, err)
	}
}

// The arguments, the result and the error of a job can be read too.
func TestJobsStoreTextThatPostgresReads(t *testing.T) {
	d := newDatabase(t)
	r := d.runner(t)
	operator := operations.Operator{Name: "a\x00b\xff", Via: operations.ViaAPI}
	job := r.ended(t, must(t)(r.Verify(t.Context(), operator, operations.VerifyOptions{Users: []string{"a\x00b"}})))
	var text string
	if err := d.pool.QueryRow(t.Context(), `SELECT to_jsonb(j)::text FROM badged.jobs AS j WHERE id = $1`, job.ID).Scan(&text); err != nil {
		t.Error(err)
	}
}
