package projector

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store"
)

// FuzzLog writes any row into the log, between two valid events. The partition
// continues: the valid events count, and each of the row is folded, or becomes a
// dead letter if it is not an event of this partition.
func FuzzLog(f *testing.F) {
	for _, bad := range badPayloads {
		f.Add(bad.payload, `{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`, []byte("0123456789abcdef"))
	}
	for _, rest := range []string{
		`"type":"message.delivered","data":{"conversation_id":"c","user_ids":["` + foldtest.User(0, 0) + `"],"seq":9223372036854775807}`,
		`"type":"message.recalled","data":{"conversation_id":"c","user_ids":["` + foldtest.User(0, 0) + `"],"seq":9223372036854775807}`,
		`"type":"conversation.read","data":{"conversation_id":"c","user_ids":["` + foldtest.User(0, 0) + `"],"up_to_seq":9223372036854775807}`,
		`"type":"conversation.marked_unread","data":{"conversation_id":"c","user_ids":["` + foldtest.User(0, 0) + `"]}`,
		`"type":"user.read_all","data":{"user_ids":["` + foldtest.User(0, 0) + `"]}`,
	} {
		f.Add(foldtest.InLog(rest), ``, []byte{})
	}
	good := foldtest.InLog(`"type":"user.read_all","data":{"user_ids":["` + foldtest.User(0, 0) + `"]}`)
	f.Add("["+good+`,{"bad":true},`+good+`,"\xff"]`, ``, []byte{})
	packed := string(foldtest.Row(slices.Repeat([]string{good, `{"bad":true}`}, 20)...))
	f.Add(packed, ``, []byte{})
	f.Add(packed[:len(packed)-9]+"\x00\xff"+packed[len(packed)-7:], ``, []byte{})
	f.Add("["+good+`,{"\xc3\x28\x00":1}`, ``, []byte{})
	f.Add(`{"specversion":"1.0","id":"`+"\xff\x00"+`"}`, ``, []byte{})
	d := newDatabase(f)
	p := d.projector.partitions[0]
	f.Fuzz(func(t *testing.T, payload, metadata string, id []byte) {
		var key uuid.UUID
		copy(key[:], id)
		user := strangerIn(0)
		d.append(t, foldtest.Deliver(user, 1, user))
		var row []byte // null if it is empty
		if payload != "" {
			row = []byte(payload)
		}
		_, err := d.pool.Exec(t.Context(), `INSERT INTO badged.events_p00 (transaction_id, uuid, payload, metadata)
VALUES (pg_current_xact_id(), $1, $2, nullif($3::text, '')::json)`, key, row, metadata)
		var refused *pgconn.PgError
		if err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
		before := count(d.projector.metrics.deadLetters)
		d.append(t, foldtest.Deliver(user, 2, user))
		d.awaitSettled(t, 0)
		drain(t, p)

		if b := d.badge(t, user); b.Total != 2 {
			t.Errorf("the total of the good events is %d, want 2", b.Total)
		}
		want := 0
		if refused == nil {
			for _, r := range logread.Split(events.Record{Payload: row}, len(row)) {
				if _, err := store.NewItem(&r, 0, foldtest.Partitions); err != nil {
					want++
				}
			}
		}
		letters := d.lines(t, `DELETE FROM badged.dead_letters RETURNING reason`)
		if n := count(d.projector.metrics.deadLetters) - before; n != want || len(letters) != want {
			t.Errorf("%d dead letters, %d of them kept; want %d", n, len(letters), want)
		}
		head := d.lines(t, `SELECT transaction_id || '/' || "offset" FROM badged.events_p00 AS log ORDER BY log.transaction_id DESC, log."offset" DESC LIMIT 1`)
		if at := d.position(t, 0).String(); at != head[0] {
			t.Errorf("the partition stands at %s of %s", at, head[0])
		}
	})
}

// strangerIn returns a new user in a partition.
func strangerIn(partition int) string {
	for {
		if user := uuid.NewString(); events.PartitionOf(user, foldtest.Partitions) == partition {
			return user
		}
	}
}
