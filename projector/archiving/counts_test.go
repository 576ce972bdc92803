package archiving_test

import (
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
)

// The baseline of a release that does not count unread conversations gives the right
// numbers.
func TestBaselineOfAnEarlierRelease(t *testing.T) {
	d := projectortest.New(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	like := foldtest.Deliver("likes", 1, ann)
	like.Data.Category = "likes"
	d.AppendAgo(t, time.Hour, foldtest.Deliver("a", 1, ann, bob), foldtest.Deliver("b", 1, ann), like)
	d.Fold(t)
	dir := t.TempDir()
	d.EndRange(t, 0)
	archived(t, d, dir)
	d.Exec(t, `UPDATE badged.users_p00_baseline SET unread_conversations = DEFAULT, category_conversations = DEFAULT`)
	d.Append(t, foldtest.Event("1", events.ConversationRead, "a", foldtest.UpTo(1), ann), foldtest.Deliver("c", 1, bob))
	d.Fold(t)
	replaytest.Verify(t, d.Pool, d.Log)
	projectortest.Same(t, "unread conversations", []string{ann + ` 2 {"chat": 1, "likes": 1}`, bob + " 2"},
		d.Lines(t, `SELECT concat_ws(' ', user_id, unread_conversations, category_conversations) FROM badged.users ORDER BY user_id`))
}
