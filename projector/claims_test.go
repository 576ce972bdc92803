package projector

import (
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/projector/replay"
)

// The tables keep what was read ahead: for the next batch of another owner, for
// a check, for a repair, and behind what is archived.
func TestClaimsAreKept(t *testing.T) {
	d := newDatabase(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	d.appendAgo(t, time.Hour,
		foldtest.Event("1", events.ConversationRead, `c "1"`, foldtest.ByApp(2), ann),
		foldtest.Event("2", events.ConversationRead, "other", foldtest.ByApp(9), ann),
		foldtest.Deliver("c", 1, bob), foldtest.Event("3", events.ConversationRead, "c", foldtest.ByApp(2), bob))
	d.fold(t)
	want := []string{
		ann + ` 0 [{"until": 1773142260000000, "up_to_seq": 2, "conversation_id": "c \"1\""}, {"until": 1773142260000000, "up_to_seq": 9, "conversation_id": "other"}]`,
		bob + ` 2 [{"until": 1773142260000000, "up_to_seq": 2, "conversation_id": "c"}]`,
	}
	rows := func() []string {
		return d.lines(t, `SELECT concat_ws(' ', user_id, version, claims) FROM badged.users WHERE partition_id = 0 ORDER BY user_id`)
	}
	same(t, "rows", want, rows())
	d.verifyAll(t, replay.VerifyOptions{})

	d.exec(t, `UPDATE badged.users SET claims = '[{"until": 1, "up_to_seq": 2, "conversation_id": "c"}]' WHERE user_id = $1`, bob)
	if differences, _ := d.verify(t, 0, replay.VerifyOptions{}); len(differences) != 1 {
		t.Errorf("differences: %v", differences)
	}
	d.exec(t, `DELETE FROM badged.users WHERE user_id = $1`, ann)
	d.rebuild(t, nil)
	same(t, "rows after a rebuild", want, rows())
	d.exec(t, `DELETE FROM badged.users WHERE user_id = $1`, ann)
	if _, healed, err := replay.NewVerifier(d.pool, d.log).Heal(t.Context(), ann); !healed || err != nil {
		t.Errorf("healed: %v, %v", healed, err)
	}
	d.verifyAll(t, replay.VerifyOptions{})

	dir := t.TempDir()
	d.cut(t, 0)
	d.archived(t, dir)
	d.projector = d.newProjector(t, nil) // who remembers no rows
	d.appendAgo(t, time.Hour-time.Minute, foldtest.Deliver(`c "1"`, 2, ann), foldtest.Deliver("c", 2, bob))
	d.appendAgo(t, time.Hour-2*time.Minute, foldtest.Deliver("other", 9, ann), foldtest.Deliver("other", 1, bob))
	d.fold(t)
	same(t, "unread", []string{"other: 1", "other: 1"}, d.unread(t))
	same(t, "claims", []string{}, d.lines(t, `SELECT user_id FROM badged.users WHERE claims IS NOT NULL`))
	d.checkArchived(t, dir, ann, bob)
}
