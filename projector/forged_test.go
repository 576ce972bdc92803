package projector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/operations/deadletters"
	"github.com/badged/badged/internal/user/erasure"
	"github.com/badged/badged/internal/user/logview"
)

// What only badged writes is a dead letter in a row of another: the name of a key, which
// blames no key, and what remains of an event. A retry publishes the event without the name.
// Erasing another user of the row makes it count no more.
func TestForgedFieldsAreDeadLetters(t *testing.T) {
	d := newDatabase(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	e := foldtest.Deliver("c", 1, ann)
	e.PublishedBy = "crm"
	named, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	other, err := foldtest.Deliver("d", 1, bob).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	d.insertPayload(t, string(named))
	d.insertPayload(t, `{"erased":[{"type":"room.joined","conversation_id":"room","users":7}]}`)
	d.insertPayload(t, fmt.Sprintf("[%s,%s]", other, named))
	d.append(t, foldtest.Event("x", events.RoomJoined, "room", nil, ann)) // its row counts members
	d.fold(t)
	letters := deadletters.New(d.pool, d.log)
	all, err := letters.List(t.Context(), 0, 10)
	if err != nil || len(all) != 3 {
		t.Fatalf("dead letters: %+v, %v; want 3", all, err)
	}
	for i, want := range []string{"publishedby: is written by badged itself only", store.ErrForged.Error(), "publishedby: is written by badged itself only"} {
		if !strings.Contains(all[i].Reason, want) {
			t.Errorf("the reason of dead letter %d is %q, want %q", i, all[i].Reason, want)
		}
	}
	if got := d.lines(t, `SELECT members::text FROM badged.rooms`); got[0] != "1" {
		t.Errorf("the room has %s members, want 1", got[0])
	}

	published := func() (n int) {
		t.Helper()
		if err := logview.New(d.pool, d.log, logview.Filter{PublishedBy: "crm", Since: time.Unix(0, 0)}).Next(t.Context(), func(int, *events.Record) error {
			n++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := published(); n != 0 {
		t.Errorf("%d rows blame the key", n)
	}
	if _, err := erasure.Erase(t.Context(), erasure.Config{Pool: d.pool, Log: d.log, UserID: bob}); err != nil {
		t.Fatal(err)
	}
	if n := published(); n != 0 {
		t.Errorf("%d rows blame the key after a user of one was erased", n)
	}
	replaytest.Verify(t, d.pool, d.log, ann)
	if _, err := letters.Retry(t.Context(), all[0].ID); err != nil {
		t.Fatal(err)
	}
	d.fold(t)
	if n := d.badge(t, ann).Total; n != 1 {
		t.Errorf("the total is %d, want the message that was retried", n)
	}
	e.ID = "by the key"
	d.append(t, e)
	d.fold(t)
	if n := published(); n != 1 {
		t.Errorf("the log has %d events of the key, want the one that badged wrote", n)
	}
	replaytest.Verify(t, d.pool, d.log, ann)
}
