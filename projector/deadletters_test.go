package projector

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/operations/deadletters"
)

// Invalid events that are in the log already, as SQL or a newer release can
// write them, and the reasons stored with them.
var badPayloads = []struct{ name, payload, reason string }{
	{"a number", `42`, `invalid event: must be a JSON object`},
	{"a list of lists", `[[{}]]`, `invalid event: must be a JSON object`},
	{"no list", `[{}`, `the batch is not valid JSON: it ends too early`},
	{"no payload", ``, `invalid event: is not valid JSON: it is empty`},
	{"an empty object", `{}`, `invalid event: specversion: is required; id: is required; source: is required; type: is required; data: is required`},
	{"a type of a newer release", foldtest.InLog(`"type":"message.starred","data":{}`), `invalid event: type: "message.starred" is not a type of event`},
	{"seq 0", foldtest.InLog(`"type":"message.delivered","data":{"conversation_id":"c","user_ids":["ann"],"seq":0}`), `invalid event: data.seq: must be at least 1, is 0`},
	{"a seq past int64", foldtest.InLog(`"type":"message.delivered","data":{"conversation_id":"c","user_ids":["ann"],"seq":1e30}`), `invalid event: data.seq: must be a whole number from 1 to 9223372036854775807, is "1e30"`},
	{"a field given twice", foldtest.InLog(`"type":"conversation.left","data":{"conversation_id":"c","conversation_id":"d","user_ids":["ann"]}`), `invalid event: is not valid JSON: duplicate object member name at byte 104`},
	{"half a surrogate pair", foldtest.InLog(`"type":"conversation.left","data":{"conversation_id":"c","user_ids":["\ud83d"]}`), "invalid event: is not valid JSON: invalid surrogate pair `\\ud83d\"]}}` in string at byte 117"},
	{"a user id with a zero byte", foldtest.InLog(`"type":"conversation.left","data":{"conversation_id":"c","user_ids":["a\u0000"]}`), `invalid event: data.user_ids[0]: must not hold control characters`},
	{"a field name with a zero byte", foldtest.InLog(`"type":"conversation.left","data":{"\u0000":"c"}`), `invalid event: data.\x00: is not a known field; data.conversation_id: is required; data.user_ids: is required`},
	{"a field name that is cut in a character", foldtest.InLog(`"` + strings.Repeat("用", 50) + `":1,"type":"user.read_all","data":{"user_ids":["ann"]}`), `invalid event: ` + strings.Repeat("用", 42) + `…: is not a known field`},
	{
		"a user of another partition",
		foldtest.InLog(`"type":"user.read_all","data":{"user_ids":["` + foldtest.User(0, 0) + `","` + foldtest.User(1, 0) + `"]}`),
		fmt.Sprintf(`user %q does not belong to partition 0`, foldtest.User(1, 0)),
	},
}

// insertPayload appends a payload to partition 0 with plain SQL; an empty one
// is null.
func (d *database) insertPayload(t *testing.T, payload string) {
	t.Helper()
	d.exec(t, `INSERT INTO badged.events_p00 (transaction_id, uuid, payload)
VALUES (pg_current_xact_id(), gen_random_uuid(), convert_to(nullif($1::text, ''), 'UTF8'))`, payload)
}

// An invalid event becomes a dead letter with its reason, in the batch that
// reads it. The valid events around it are folded, and the partition
// continues.
func TestBadEventsArePutAside(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	for i, bad := range badPayloads {
		d.append(t, foldtest.Deliver("c", int64(i+1), ann))
		d.insertPayload(t, bad.payload)
	}
	d.append(t, foldtest.Deliver("c", int64(len(badPayloads)+1), ann))
	d.fold(t)

	if b := d.badge(t, ann); b.Total != int64(len(badPayloads)+1) {
		t.Errorf("the total is %d, want the %d good events", b.Total, len(badPayloads)+1)
	}
	letters, err := deadletters.New(d.pool, d.log).List(t.Context(), 0, 100)
	if err != nil || len(letters) != len(badPayloads) {
		t.Fatalf("%d dead letters, want %d; error %v", len(letters), len(badPayloads), err)
	}
	for i, bad := range badPayloads {
		t.Run(bad.name, func(t *testing.T) {
			l := letters[i]
			if diff := cmp.Diff(bad.reason, l.Reason); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			want := bad.payload
			if bad.name == "a list of lists" { // the only event of its row
				want = `[{}]`
			}
			if string(l.Payload) != want || (l.Payload == nil) != (bad.payload == "") {
				t.Errorf("payload %q, want %q", l.Payload, want)
			}
			if l.Partition != 0 || l.At.IsZero() {
				t.Errorf("partition %d at %v", l.Partition, l.At)
			}
			uuid := d.lines(t, `SELECT uuid::text FROM badged.events_p00 WHERE transaction_id = $1::bigint::text::xid8 AND "offset" = $2`,
				l.Place.TransactionID, l.Place.Offset)
			if diff := cmp.Diff([]string{l.UUID}, uuid); diff != "" {
				t.Errorf("uuid at its position (-letter +log):\n%s", diff)
			}
		})
	}
	m := d.projector.metrics
	if n := count(m.deadLetters); n != len(badPayloads) {
		t.Errorf("%d dead letters are counted, want %d", n, len(badPayloads))
	}
	if lag := d.lags(t)[0]; lag.Folded != lag.Head || lag.Events != 0 {
		t.Errorf("the partition stands at %v of %v", lag.Folded, lag.Head)
	}
}

// A running loop passes a batch of only invalid events.
func TestABatchOfBadEventsOnly(t *testing.T) {
	d := newDatabase(t)
	for _, bad := range badPayloads {
		d.insertPayload(t, bad.payload)
	}
	d.fold(t)
	if n := len(d.lines(t, `SELECT reason FROM badged.dead_letters`)); n != len(badPayloads) {
		t.Errorf("%d dead letters, want %d", n, len(badPayloads))
	}
	if d.position(t, 0) == (events.Position{}) {
		t.Error("the position has not moved")
	}
}

// Dead letters of a batch that is rolled back are rolled back too, and stored
// once in the end.
func TestDeadLettersAreOfTheBatch(t *testing.T) {
	d := newDatabase(t)
	d.insertPayload(t, `{}`)
	d.awaitSettled(t, 0)
	p := d.projector.partitions[0]
	d.exec(t, `ALTER TABLE badged.dead_letters ADD CONSTRAINT no_room CHECK (false) NOT VALID`)
	if _, _, err := p.step(t.Context()); err == nil {
		t.Error("a dead letter was lost, and the batch went on")
	}
	d.exec(t, `ALTER TABLE badged.dead_letters DROP CONSTRAINT no_room`)
	step(t, p, 10)
	step(t, p, 10)
	theDeadLetter(t, deadletters.New(d.pool, d.log))
}

// A row that ends a level, which only badged may write, has no effect.
func TestForgedEndOfALevelIsADeadLetter(t *testing.T) {
	d := newDatabase(t)
	ann, until := foldtest.User(0, 0), time.Now().UTC().Add(time.Hour).Truncate(time.Microsecond)
	d.append(t, foldtest.Deliver("c", 1, ann),
		foldtest.Event("m", events.ConversationLevelSet, "c", func(d *events.Data) { d.Level, d.Until = events.LevelNone, until }, ann))
	ended := foldtest.Event("x", events.ConversationLevelEnded, "c", func(d *events.Data) { d.Until = until }, ann)
	payload, err := ended.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	d.exec(t, `INSERT INTO badged.events_p00 (uuid, payload) VALUES (gen_random_uuid(), convert_to($1, 'UTF8'))`, string(payload))
	d.fold(t)
	if n := d.badge(t, ann).Total; n != 0 {
		t.Errorf("the total is %d, want 0: the level has ended", n)
	}
	letters, err := deadletters.New(d.pool, d.log).List(t.Context(), 0, 10)
	if err != nil || len(letters) != 1 || letters[0].Reason != ended.CheckReserved().Error() {
		t.Fatalf("dead letters: %+v, %v", letters, err)
	}
	replaytest.Verify(t, d.pool, d.log, ann)
}

// An event of a reserved type that badged did not write is not folded, nor
// replayed, and cannot be retried.
func TestForgedExpiryIsADeadLetter(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	expired := foldtest.Event("x", events.ConversationExpired, "c", foldtest.UpTo(1), ann)
	expired.Time = time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	payload, err := expired.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	d.append(t, foldtest.Deliver("c", 1, ann))
	d.exec(t, `INSERT INTO badged.events_p00 (uuid, payload) VALUES ($1, convert_to($2, 'UTF8'))`, expired.Key(), string(payload))
	d.exec(t, `INSERT INTO badged.events_p00 (uuid, payload) VALUES (gen_random_uuid(), convert_to($1, 'UTF8'))`, string(payload))
	d.fold(t)
	if n := d.badge(t, ann).Total; n != 1 {
		t.Errorf("the total is %d, want 1", n)
	}
	letters, err := deadletters.New(d.pool, d.log).List(t.Context(), 0, 10)
	if err != nil || len(letters) != 2 || letters[0].Reason != expired.CheckReserved().Error() {
		t.Fatalf("dead letters: %+v, %v", letters, err)
	}
	if _, err := deadletters.New(d.pool, d.log).Retry(t.Context(), letters[0].ID); err == nil {
		t.Error("it can be retried")
	}
	replaytest.Verify(t, d.pool, d.log, ann)
	d.append(t, foldtest.Event("y", events.ConversationExpired, "c", foldtest.UpTo(1), ann)) // badged's own
	d.fold(t)
	if n := d.badge(t, ann).Total; n != 0 {
		t.Errorf("the total is %d after badged has expired it", n)
	}
}

// A projector whose position was set back passes dead letters again: it puts none aside
// twice, also those that were retried or discarded, and folds none that it could by now.
func TestDeadLettersBehindAPositionThatWasSetBack(t *testing.T) {
	d := newDatabase(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	readable, err := foldtest.Deliver("c", 1, ann).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	d.append(t, foldtest.Event("join", events.RoomJoined, "room", nil, bob))
	d.fold(t)
	for _, bad := range []string{`{"kept":1}`, `{"discarded":1}`, `{"retried":1}`, `{"readable":1}`} {
		d.insertPayload(t, bad)
	}
	d.append(t, foldtest.Deliver("room", 1, ann, bob), foldtest.Deliver("d", 1, ann))
	d.fold(t)
	letters := deadletters.New(d.pool, d.log)
	all, err := letters.List(t.Context(), 0, 10)
	if err != nil || len(all) != 5 {
		t.Fatalf("%d dead letters, error %v; want 5", len(all), err)
	}
	if _, err := letters.Discard(t.Context(), all[1].ID); err != nil {
		t.Fatal(err)
	}
	d.exec(t, `UPDATE badged.dead_letters SET payload = $1 WHERE id = $2`, readable, all[2].ID)
	if _, err := letters.Retry(t.Context(), all[2].ID); err != nil {
		t.Fatal(err)
	}
	d.exec(t, `UPDATE badged.events_p00 SET payload = $1 WHERE payload = '{"readable":1}'`, bytes.Replace(readable, []byte(`"c"`), []byte(`"hidden"`), 1))
	d.fold(t)
	before, counted := d.lines(t, `SELECT id || reason FROM badged.dead_letters ORDER BY id`), count(d.projector.metrics.deadLetters)
	for i := range 2 {
		d.append(t, foldtest.Deliver("d", int64(2+i), ann)) // whose batch is fenced
		d.exec(t, `UPDATE badged.events_p00_offsets SET last_processed_transaction_id = '0', offset_acked = 0 WHERE consumer_group = 'projector'`)
		d.fold(t)
		if lag := d.lags(t)[0]; lag.Folded != lag.Head {
			t.Fatalf("the partition stands at %v of %v", lag.Folded, lag.Head)
		}
	}
	if diff := cmp.Diff(before, d.lines(t, `SELECT id || reason FROM badged.dead_letters ORDER BY id`)); diff != "" {
		t.Errorf("dead letters (-before +after):\n%s", diff)
	}
	if n := count(d.projector.metrics.deadLetters); n != counted {
		t.Errorf("%d dead letters are counted, want %d", n, counted)
	}
	if n := d.badge(t, ann).Total; n != 5 {
		t.Errorf("the total is %d, want 5", n)
	}
	replaytest.Verify(t, d.pool, d.log, ann, bob)
}

// theDeadLetter returns the only dead letter.
func theDeadLetter(t *testing.T, letters *deadletters.Letters) deadletters.Letter {
	t.Helper()
	all, err := letters.List(t.Context(), 0, 10)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d dead letters, error %v", len(all), err)
	}
	return all[0]
}

// One bad event of a row is a dead letter with its place and its own payload; the
// others are folded, by a rebuild too. A row that cannot be taken apart is one
// dead letter.
func TestBadEventsOfBatches(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	var row []string
	for i := range 100 {
		payload, err := foldtest.Deliver("c", int64(i+1), ann).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		row = append(row, string(payload))
	}
	row[7], row[99] = `{"bad":7}`, `nonsense`
	packed := foldtest.Row(row...)
	const insert = `INSERT INTO badged.events_p00 (uuid, payload, events) VALUES (gen_random_uuid(), $1, 100)`
	d.exec(t, insert, packed)
	packed[len(packed)-1] ^= 0xFF
	d.exec(t, insert, packed)
	if lag := d.lags(t)[0]; lag.Events != 200 {
		t.Errorf("the lag is %d events, want 200", lag.Events)
	}
	d.fold(t)
	if n := d.badge(t, ann).Total; n != 98 {
		t.Errorf("the total is %d, want the 98 good events", n)
	}
	letters, err := deadletters.New(d.pool, d.log).List(t.Context(), 0, 10)
	if err != nil || len(letters) != 3 {
		t.Fatalf("%d dead letters, error %v; want 3", len(letters), err)
	}
	for i, want := range []struct {
		index   int
		payload string
		reason  string
	}{
		{7, row[7], "invalid event: bad: is not a known field"},
		{99, row[99], "invalid event: is not valid JSON"},
		{0, string(packed), "the row cannot be decompressed"},
	} {
		l := letters[i]
		if l.Place.Index != want.index || string(l.Payload) != want.payload || !strings.HasPrefix(l.Reason, want.reason) {
			t.Errorf("dead letter %d at %v because %s: %.60q", i, l.Place, l.Reason, l.Payload)
		}
	}
	if letters[0].Place.Position != letters[1].Place.Position || letters[2].Place.Position == letters[0].Place.Position {
		t.Errorf("dead letters are at %v, %v and %v", letters[0].Place, letters[1].Place, letters[2].Place)
	}
	replaytest.Verify(t, d.pool, d.log, ann)
}
