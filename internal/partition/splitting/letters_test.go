package splitting_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// Each child gets the dead letters, also the settled ones, and the other rows of its users. The
// first child gets the dead letters that name no user.
func TestSplitSharesWhatIsBesideTheBadges(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	users := halves()
	d.InsertPayload(t, "no event")
	d.Append(t, foldtest.Event("join", events.RoomJoined, "lobby", nil, users[:]...))
	d.Append(t, foldtest.Deliver("lobby", 1, users[:]...)) // refused for members
	d.Append(t, foldtest.Deliver("lobby", 2, users[1]))
	d.Append(t, foldtest.Deliver("lobby", 3, users[:]...))
	d.Fold(t)
	d.StopFolding()
	d.Exec(t, `WITH settled AS (DELETE FROM badged.dead_letters WHERE id = (SELECT max(id) FROM badged.dead_letters) RETURNING *)
INSERT INTO badged.settled_letters (partition_id, transaction_id, "offset", index, user_ids) SELECT partition_id, transaction_id, "offset", index, user_ids FROM settled`)
	d.Exec(t, `INSERT INTO badged.webhooks (generation, batch, rate, name, url, state, secrets, events) VALUES (1, 1, 1, 'hook', 'https://example.com', 'active', '{}', '{deadletter.buried}')`)
	for _, user := range users {
		d.Exec(t, `INSERT INTO badged.devices (generation, changes, registered_at, attempts, partition_id, user_id, device_id, app, platform, environment, shows, token, fingerprint)
VALUES (1, 1, now(), 0, 0, $1, 'phone', 'chat', 'fcm', '', 'total', '', '')`, user)
		d.Exec(t, `INSERT INTO badged.alerts (seq, queued_at, partition_id, mentions, named, user_id, device_id, conversation_id, title, body) VALUES (1, now(), 0, false, false, $1, 'phone', 'c', '', '')`, user)
		d.Exec(t, `INSERT INTO badged.webhook_queue (changes, queued_at, attempts, partition_id, webhook, type, subject) VALUES (1, now(), 0, 0, 'hook', 'badge.changed', $1)`, user)
	}
	d.Exec(t, `INSERT INTO badged.webhook_queue (changes, queued_at, attempts, partition_id, webhook, type, subject) VALUES (1, now(), 0, 0, 'hook', 'room.changed', 'lobby'), (1, now(), 0, 0, 'hook', 'deadletter.buried', '1')`)
	counts := func(partition int) string {
		return fmt.Sprintf(`(SELECT folded FROM badged.events_p%02d_offsets WHERE consumer_group = 'projector')`, partition)
	}
	folded := d.Lines(t, `SELECT `+counts(0)+`::text`)
	split(t, d, 0)
	check := func(what, sql string, want ...string) {
		t.Helper()
		if got := d.Lines(t, sql); !slices.Equal(got, want) {
			t.Errorf("%s:\n%q\nwant\n%q", what, got, want)
		}
	}
	both := func(format string) []string {
		return []string{fmt.Sprintf(format, 4, users[0]), fmt.Sprintf(format, 8, users[1])}
	}
	check("letters", `SELECT partition_id || ' ' || coalesce(user_ids::text, 'none') || ' ' || (id < 4) FROM badged.dead_letters ORDER BY partition_id, "offset"`,
		"4 none true", "4 {"+users[0]+"} true", "8 {"+users[1]+"} false", "8 {"+users[1]+"} true")
	check("letters name users", `SELECT (convert_from(payload, 'UTF8')::jsonb #>> '{data,user_ids}') FROM badged.dead_letters WHERE user_ids IS NOT NULL ORDER BY partition_id, "offset"`,
		`["`+users[0]+`"]`, `["`+users[1]+`"]`, `["`+users[1]+`"]`)
	check("settled letters", `SELECT partition_id || ' ' || array_to_string(user_ids, ',') FROM badged.settled_letters ORDER BY 1`, both("%d %s")...)
	check("devices", `SELECT partition_id || ' ' || user_id FROM badged.devices ORDER BY 1`, both("%d %s")...)
	check("alerts", `SELECT partition_id || ' ' || user_id FROM badged.alerts ORDER BY 1`, both("%d %s")...)
	check("calls of users", `SELECT partition_id || ' ' || subject FROM badged.webhook_queue WHERE type = 'badge.changed' ORDER BY 1`, both("%d %s")...)
	check("other calls", `SELECT partition_id || ' ' || type FROM badged.webhook_queue WHERE type <> 'badge.changed' ORDER BY 1`, "4 deadletter.buried", "4 room.changed", "8 room.changed")
	check("members", `SELECT partition_id || ' ' || members FROM badged.rooms ORDER BY 1`, "4 1", "8 1")
	check("folded events", `SELECT (`+counts(4)+` + `+counts(8)+`)::text`, folded...)
	verify(t, d)
}
