package archiving_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
)

// At any cut of the log, replays from the baseline and from the archive reproduce the tables of
// rooms, and a rebuild produces the same rows.
func TestArchiveRooms(t *testing.T) {
	d, dir := projectortest.New(t), filepath.Join(t.TempDir(), "archive")
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2)}
	drawn := rapid.Custom(func(rt *rapid.T) []events.Event {
		return append(foldtest.DrawRooms(rt, users), foldtest.DrawMany(rt, users)...)
	})
	for turn := range 3 { // the same rooms go on in each
		history := drawn.Example(turn)
		for i := range history {
			history[i].Source = fmt.Sprint("turn ", turn)
		}
		// Messages from before the cut are recalled behind it, and leave the sets of the members that they name.
		seq := int64(turn + 1)
		if turn == 0 {
			d.Append(t, foldtest.Event("hall", events.RoomJoined, "hall", nil, users...))
			for i := range int64(200) { // gaps between the seqs, enough for closed chunks
				d.Append(t, foldtest.Event(fmt.Sprint("long ", i), events.RoomPosted, "long", foldtest.Seq(2*i+1)))
			}
		} else {
			d.Append(t, foldtest.Event(fmt.Sprint("recall ", turn), events.RoomRecalled, "hall", foldtest.Seq(seq-1)))
		}
		d.Append(t, foldtest.Event(fmt.Sprint("post ", turn), events.RoomPosted, "hall", func(d *events.Data) {
			d.Seq, d.SenderID, d.MentionedUserIDs = seq, users[0], users[1:2]
		}))
		d.Append(t, append(history, foldtest.Event(fmt.Sprint("join ", turn), events.RoomJoined, "c1", nil, users[turn%3]))...)
		d.Fold(t)
		d.EndRange(t, 0)
		if turn < 2 {
			archived(t, d, dir)
		}
		replaytest.Verify(t, d.Pool, d.Log, users...)
	}
	for _, of := range [][]string{nil, users[:1]} {
		_, err := replay.NewVerifier(d.Pool, d.Log).WithArchive(openArchive(t, dir)).Verify(t.Context(), 0, replay.VerifyOptions{
			Users: of, Memory: 1 << 20, Found: func(d replay.Difference) { t.Errorf("from the archive, of %v: %s", of, d) },
		})
		if err != nil {
			t.Error(err)
		}
	}
	if chunks := d.Lines(t, `SELECT count(*)::text FROM badged.room_chunks_p00_baseline`); chunks[0] == "0" {
		t.Error("the baseline has no chunks")
	}
	right := d.Dump(t)
	for _, memory := range []int64{0, 100_000} {
		d.Exec(t, `TRUNCATE badged.rooms_p00, badged.room_chunks_p00, badged.room_marks_p00`)
		if different := rebuilt(t, d, func(cfg *rebuild.Config) { cfg.Memory = memory }); different == 0 {
			t.Error("the rebuild found no difference")
		}
		projectortest.Same(t, "rows", right, d.Dump(t))
	}
}
