package erasure_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/user/erasure"
)

// A process that replays hints stores new hints for messages that it cannot append. An erasure
// that has read the old hints searches the new hints too.
func TestEraseWhatWaitsAgain(t *testing.T) {
	d := projectortest.New(t)
	text, err := json.Marshal([]events.Event{{
		ID: "about", Source: "test", Type: events.RoomPosted,
		Data: events.Data{ConversationID: "lobby", Seq: 1, SenderID: near, MentionedUserIDs: []string{id, near}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const keep = `INSERT INTO badged.hints (shard, moves, count, messages) VALUES ('a', 0, 1, $1)`
	d.Exec(t, keep, text)
	begin := func(sql string, args ...any) pgx.Tx {
		t.Helper()
		tx := d.Begin(t)
		if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	commit := func(tx pgx.Tx) {
		t.Helper()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	delivery := begin(`DELETE FROM badged.hints`)
	back := begin(keep, text)
	d.Exec(t, keep, text) // of another call, behind what waits again
	erased := make(chan erasure.Counts, 1)
	go func() {
		counts, err := erasure.EraseHints(t.Context(), d.Pool, id)
		if err != nil {
			t.Error(err)
		}
		erased <- counts
	}()
	awaitLock(t, d)
	commit(back)
	commit(delivery)
	if got := projectortest.Await(t, erased, "the erasure"); got != (erasure.Counts{Changed: 2}) {
		t.Errorf("erased %+v", got)
	}
	if names, err := erasure.HintsMayName(t.Context(), d.Pool, id); err != nil || names {
		t.Errorf("what waits names the user: %v, %v", names, err)
	}
}
