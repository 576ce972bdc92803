package archiving_test

import (
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/replay"
)

// The tables store reads ahead of the log: for the next owner, for verifying, healing and
// rebuilding, and in the baseline of an archive.
func TestClaimsAreKept(t *testing.T) {
	d := projectortest.New(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	d.AppendAgo(t, time.Hour,
		foldtest.Event("1", events.ConversationRead, `c "1"`, foldtest.ByApp(2), ann),
		foldtest.Event("2", events.ConversationRead, "other", foldtest.ByApp(9), ann),
		foldtest.Deliver("c", 1, bob), foldtest.Event("3", events.ConversationRead, "c", foldtest.ByApp(2), bob))
	d.Fold(t)
	want := []string{
		ann + ` 0 [{"until": 1773142260000000, "up_to_seq": 2, "conversation_id": "c \"1\""}, {"until": 1773142260000000, "up_to_seq": 9, "conversation_id": "other"}]`,
		bob + ` 2 [{"until": 1773142260000000, "up_to_seq": 2, "conversation_id": "c"}]`,
	}
	rows := func() []string {
		return d.Lines(t, `SELECT concat_ws(' ', user_id, version, claims) FROM badged.users WHERE partition_id = 0 ORDER BY user_id`)
	}
	projectortest.Same(t, "rows", want, rows())
	replaytest.Verify(t, d.Pool, d.Log)

	d.Exec(t, `UPDATE badged.users SET claims = '[{"until": 1, "up_to_seq": 2, "conversation_id": "c"}]' WHERE user_id = $1`, bob)
	if v, err := replay.NewVerifier(d.Pool, d.Log).Verify(t.Context(), 0, replay.VerifyOptions{Found: func(replay.Difference) {}}); err != nil || v.Differences != 1 {
		t.Errorf("verified %+v, %v", v, err)
	}
	d.Exec(t, `DELETE FROM badged.users WHERE user_id = $1`, ann)
	rebuilt(t, d, nil)
	projectortest.Same(t, "rows after a rebuild", want, rows())
	d.Exec(t, `DELETE FROM badged.users WHERE user_id = $1`, ann)
	if _, version, err := replay.NewVerifier(d.Pool, d.Log).Heal(t.Context(), ann); version == 0 || err != nil {
		t.Errorf("healed in version %d, %v", version, err)
	}
	replaytest.Verify(t, d.Pool, d.Log)

	dir := t.TempDir()
	d.EndRange(t, 0)
	archived(t, d, dir)
	d.StopFolding() // the next projector has no rows cached
	d.AppendAgo(t, time.Hour-time.Minute, foldtest.Deliver(`c "1"`, 2, ann), foldtest.Deliver("c", 2, bob))
	d.AppendAgo(t, time.Hour-2*time.Minute, foldtest.Deliver("other", 9, ann), foldtest.Deliver("other", 1, bob))
	d.Fold(t)
	projectortest.Same(t, "unread", []string{"other: 1", "other: 1"}, d.Lines(t, `SELECT conversation_id || ': ' || unread FROM badged.conversations WHERE unread > 0`))
	projectortest.Same(t, "claims", []string{}, d.Lines(t, `SELECT user_id FROM badged.users WHERE claims IS NOT NULL`))
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, ann, bob)
}
