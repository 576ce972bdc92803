package erasure_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
	"github.com/badged/badged/internal/user/erasure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// id is the id of a user, which no other text contains. JSON has escapes for it.
const id = `zoë "the ghost" <4711>`

// partition is the partition of the user.
var partition = events.PartitionOf(id, foldtest.Partitions)

// near and far are users in the partition of the user and in another.
var near, far = foldtest.User(partition, 1), foldtest.User((partition+1)%foldtest.Partitions, 1)

// populate fills a database with all kinds of data that badged may have of the user.
func populate(t testing.TB, d *projectortest.Database) {
	t.Helper()
	sent := foldtest.Deliver("lunch", 1<<60, near, far)
	sent.Data.SenderID, sent.ID = id, "sent"
	long := make([]events.Event, 200) // compressed
	for i := range long {
		long[i] = foldtest.Deliver("busy", int64(i+1), near)
	}
	long[150] = foldtest.Named("in a long row", foldtest.Deliver("busy", 151, near, id))
	posted := foldtest.Event("posted", events.RoomPosted, "hall", foldtest.Seq(5))
	posted.Data.SenderID = far
	posted.Data.MentionedUserIDs = []string{id, near}
	own := foldtest.Event("own", events.RoomPosted, "hall", foldtest.Seq(6))
	own.Data.SenderID = id
	d.Append(t, foldtest.Mentioning(foldtest.Deliver("lunch", 7, id, near)), sent)
	d.Append(t, long...)
	d.Append(t, foldtest.Event("join", events.RoomJoined, "hall", nil, id, near))
	d.Append(t, posted, own)
	d.Append(t, foldtest.Event("read", events.ConversationRead, "busy", foldtest.UpTo(100), id))
	d.Append(t, foldtest.Event("of others", events.ConversationRead, "busy", foldtest.UpTo(100), near))
	quoted, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	d.Exec(t, fmt.Sprintf(`INSERT INTO badged.events_p%02d (uuid, payload) VALUES (gen_random_uuid(), $1)`, partition),
		[]byte(foldtest.InLog(`"type":"of tomorrow","data":{"user_ids":[`+string(quoted)+`,"somebody else"]}`)))
	d.Fold(t)
	d.Exec(t, `INSERT INTO badged.devices (generation, changes, registered_at, attempts, partition_id, user_id, device_id, app, platform, environment, shows, token, fingerprint)
VALUES (1, 0, now(), 0, $1, $2, 'phone', 'chat', 'fcm', '', 'total', 'a secret token', 'print')`, partition, id)
	d.Exec(t, `INSERT INTO badged.alerts (seq, queued_at, partition_id, mentions, named, user_id, device_id, conversation_id, title, body)
VALUES (7, now(), $1, true, true, $2, 'phone', 'lunch', 'Ada', 'Hi')`, partition, id)
	d.Exec(t, `INSERT INTO badged.room_alerts (seq, queued_at, partition_id, mentions_all, conversation_id, sender_id, title, body)
VALUES (6, now(), $1, true, 'hall', $2, 'Zoe', 'Hi all')`, partition, id)
	d.Exec(t, `INSERT INTO badged.webhooks (generation, batch, rate, name, url, state, secrets, events) VALUES (2, 1, 0, 'crm', 'https://crm.example', 'active', '{}', '{badge.changed}')`)
	d.Exec(t, `INSERT INTO badged.webhook_queue (changes, queued_at, attempts, partition_id, webhook, type, subject) VALUES (1, now(), 0, $1, 'crm', 'badge.changed', $2)`, partition, id)
	d.Exec(t, `INSERT INTO badged.revocations (seq, ended_at, user_id) VALUES (1, now(), $1)`, id)
	d.Exec(t, `INSERT INTO badged.healed_users (partition_id, user_id, version, ahead) VALUES ($1, $2, 1, 0)`, partition, id)
	d.Exec(t, `INSERT INTO badged.dead_letters (origin, payload, reason) VALUES ('redis chat 1-1', $1, 'it is no event')`, []byte(`["`+"\x7f"+`",{"to":`+string(quoted)+`}]`))
	d.Exec(t, `INSERT INTO badged.jobs (kind, arguments, started_by, process, state, ended_at) VALUES ('verification', json_build_object('users', json_build_array($1::text, 'somebody else')), 'ops', 'db1/1', 'done', now())`, id)
	d.Exec(t, `INSERT INTO badged.audit (who, via, action, arguments) VALUES ('ops', 'api', 'user.explain', json_build_object('user', $1::text)), ('ops', 'api', 'user.explain', json_build_object('user', $1::text || 'x'))`, id)
}

// exported returns what is exported of a user.
func exported(t testing.TB, d *projectortest.Database, user string, a *archive.Archive) []erasure.Holding {
	t.Helper()
	var b bytes.Buffer
	found := 0
	done, err := erasure.Write(t.Context(), &b, func(context.Context) error {
		if found++; b.Len() > 0 {
			t.Error("it is told that something is found after that was written")
		}
		return nil
	}, erasure.ExportConfig{Pool: d.Pool, Log: d.Log, UserID: user, Archive: a})
	n := done.Holdings
	if err != nil || found > 1 || (found == 1) != (n > 0) {
		t.Fatalf("%d holdings, told %d times, %v", n, found, err)
	}
	var all []erasure.Holding
	for line := range strings.Lines(b.String()) {
		var h erasure.Holding
		if err := json.Unmarshal([]byte(line), &h); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, h)
	}
	if end := all[len(all)-1]; end.Kind != "end" || string(end.Record) != fmt.Sprintf(`{"holdings":%d}`, n) || len(all) != n+1 {
		t.Fatalf("%d holdings end with %s %s", n, end.Kind, end.Record)
	}
	return all[:n]
}

// kinds returns how many holdings there are of each kind.
func kinds(holdings []erasure.Holding) map[string]int {
	n := map[string]int{}
	for _, h := range holdings {
		n[h.Kind]++
	}
	return n
}

// An export has all data of a user in all partitions, and no data of others.
func TestExport(t *testing.T) {
	d := projectortest.New(t)
	populate(t, d)
	all := exported(t, d, id, nil)
	want := map[string]int{
		"user": 1, "conversation": 3, "room_mark": 2, "healed_user": 1, "device": 1, "alert": 1, "room_alert": 1, "webhook_call": 1,
		"revocation": 1, "dead_letter": 2, "job": 1, "action": 1,
		// Delivered, in a long row, joined, posted, read, the dead letter; and what the user
		// sent, in the partitions of recipients or, in the room, in all.
		"event": 12,
	}
	if diff := cmp.Diff(want, kinds(all)); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	var text strings.Builder
	for _, h := range all {
		fmt.Fprintf(&text, "%s %s\n", h.Kind, h.Record)
	}
	for _, of := range []string{near, "somebody else", "of others", "a secret token", "print", "4711>x"} {
		if strings.Contains(text.String(), of) {
			t.Errorf("the export has %q:\n%s", of, &text)
		}
	}
	for _, of := range []string{`"categories":{"chat":[2,2,1]}`, `"unread_set":"{[151,152)}"`, `"seq":1152921504606846976`, `"in a long row"`, `"type":"of tomorrow"`, `"action":"user.explain"`} {
		if !strings.Contains(text.String(), of) {
			t.Errorf("the export has no %s:\n%s", of, &text)
		}
	}
}

// archived moves the log to an archive.
func archived(t testing.TB, d *projectortest.Database, dir string) *archive.Archive {
	t.Helper()
	if err := tryArchive(t, d, archive.Folder(dir)); err != nil {
		t.Fatal(err)
	}
	a, err := archive.OpenStore(t.Context(), archive.Folder(dir))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// tryArchive ends the ranges of the log, and archives what it can.
func tryArchive(t testing.TB, d *projectortest.Database, store archive.Store) error {
	t.Helper()
	for p := range foldtest.Partitions {
		d.EndRange(t, p)
		// There is no notifier.
		d.Exec(t, fmt.Sprintf(`UPDATE badged.events_%[1]s_offsets SET (offset_acked, last_processed_transaction_id) =
    (SELECT offset_acked, last_processed_transaction_id FROM badged.events_%[1]s_offsets WHERE consumer_group = 'projector')
WHERE consumer_group LIKE 'badged%%'`, fmt.Sprintf("p%02d", p)))
	}
	return archiving.Run(t.Context(), archiving.Config{Pool: d.Pool, Log: d.Log, Store: store, Before: time.Now().Add(time.Hour)})
}

// JSON that Postgres stores but cannot read as text stops no export, of any user.
func TestExportWithTextThatPostgresCannotRead(t *testing.T) {
	d := projectortest.New(t)
	for _, value := range []string{`"\u0000"`, `"\ud83d"`, `"\ude00"`, `1e999999`} {
		content := `{"webhook":` + value + `,"user":"ada \"a\""}`
		d.Exec(t, `INSERT INTO badged.audit (who, via, action, arguments) VALUES ('ops', 'api', 'webhooks.test', $1::text::json)`, content)
		d.Exec(t, `INSERT INTO badged.audit_ends (audit_id, result) SELECT max(id), $1::text::json FROM badged.audit`, content)
		d.Exec(t, `INSERT INTO badged.jobs (kind, arguments, progress, result, started_by, process, state, ended_at) VALUES ('verification', $1::text::json, $1::text::json, $1::text::json, 'ops', 'db1/1', 'done', now())`, content)
	}
	for user, want := range map[string]map[string]int{`ada "a"`: {"action": 4, "job": 4}, "bob": {}} {
		if diff := cmp.Diff(want, kinds(exported(t, d, user, nil))); diff != "" {
			t.Errorf("of %s (-want +got):\n%s", user, diff)
		}
	}
}

// Archived events and the baseline are exported too.
func TestExportWithArchive(t *testing.T) {
	d := projectortest.New(t)
	populate(t, d)
	before := exported(t, d, id, nil)
	a := archived(t, d, t.TempDir())
	all := exported(t, d, id, a)
	n := kinds(all)
	if n["event"] != 0 || n["archived_event"] != 12 || n["baseline_user"] != 1 || n["baseline_conversation"] != 3 || n["baseline_room_mark"] != 2 {
		t.Errorf("the kinds are %v", n)
	}
	eventsOf := func(holdings []erasure.Holding, kind string) (of []string) {
		for _, h := range holdings {
			if h.Kind == kind {
				of = append(of, string(h.Record))
			}
		}
		return of
	}
	if got, want := eventsOf(all, "archived_event"), eventsOf(before, "event"); !slices.Equal(got, want) {
		t.Errorf("the archived events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The export of an unknown user is empty, even if other ids contain the id.
func TestExportOfAnUnknownUser(t *testing.T) {
	d := projectortest.New(t)
	populate(t, d)
	for _, user := range []string{"unknown", strings.TrimSuffix(id, ">"), "4711"} {
		for _, h := range exported(t, d, user, nil) {
			t.Errorf("of %q it exports %s %s", user, h.Kind, h.Record)
		}
	}
}

// Copies of letters for a partition that is moving to the database are not exported, and an
// erasure does not touch them.
func TestLettersOfAPartitionThatIsNotHeld(t *testing.T) {
	d := projectortest.New(t)
	populate(t, d)
	d.StopFolding()
	const moving = 3
	d.Exec(t, `DELETE FROM badged.partitions WHERE partition_id = $1`, moving)
	d.Exec(t, `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, payload, reason, user_ids)
		VALUES ($1, '9', 9, gen_random_uuid(), 'copy', 'copy', ARRAY[$2])`, moving, id)
	d.Exec(t, `INSERT INTO badged.settled_letters (partition_id, transaction_id, "offset", index, user_ids) VALUES ($1, '8', 8, 0, ARRAY[$2])`, moving, id)
	for _, h := range exported(t, d, id, nil) {
		if strings.Contains(string(h.Record), `"copy"`) {
			t.Errorf("exported: %s", h.Record)
		}
	}
	folding(t, d)
	erase(t, d, id)
	for _, table := range []string{"dead_letters", "settled_letters"} {
		if left := d.Lines(t, `SELECT 'it' FROM badged.`+table+` WHERE partition_id = $1 AND $2 = ANY (user_ids)`, moving, id); len(left) != 1 {
			t.Errorf("of %s %d copies are left", table, len(left))
		}
	}
}
