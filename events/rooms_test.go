package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/eventlog"
)

// joined makes users members of a room.
func joined(id, room string, users ...string) events.Event {
	return events.Event{ID: id, Source: "/chat", Type: events.RoomJoined, Data: events.Data{ConversationID: room, UserIDs: users}}
}

// posted is a message to a room that mentions users.
func posted(room string, seq int64, mentioned ...string) events.Event {
	return events.Event{ID: fmt.Sprintf("%s/%d", room, seq), Source: "/chat", Type: events.RoomPosted, Data: events.Data{ConversationID: room, Seq: seq, MentionedUserIDs: mentioned}}
}

// inLog returns what is in each partition of the log, as sentences.
func inLog(t testing.TB, q events.Querier) (all [partitions][]string) {
	t.Helper()
	for p := range partitions {
		for _, e := range decodeAll(t, readAll(t, q, p, events.Position{})) {
			d := e.Data
			var s string
			switch e.Type {
			case events.RoomJoined:
				s = fmt.Sprintf("%s joined", strings.Join(d.UserIDs, " "))
				if d.UpToSeq > 0 {
					s += fmt.Sprintf(" up to %d", d.UpToSeq)
				}
				if d.Seq > 0 {
					s += fmt.Sprintf(" at %d", d.Seq)
				}
			case events.RoomPosted:
				s = strings.TrimSpace(fmt.Sprintf("posted %d %s", d.Seq, strings.Join(d.MentionedUserIDs, " ")))
			case events.RoomRecalled:
				s = fmt.Sprintf("recalled %d", d.Seq)
			case events.RoomLeft:
				s = fmt.Sprintf("%s left", strings.Join(d.UserIDs, " "))
			default:
				s = string(e.Type)
			}
			all[p] = append(all[p], s)
		}
	}
	return all
}

func expectLog(t testing.TB, q events.Querier, want [partitions][]string) {
	t.Helper()
	if diff := cmp.Diff(want, inLog(t, q)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// The users of the tests: one in each partition.
var u0, u1, u2, u3 = userIn(0, 0), userIn(1, 0), userIn(2, 0), userIn(3, 0)

// appenders append events in each way. They are on the same log.
var appenders = []struct {
	name   string
	append func(t *testing.T, log *events.Log, pool *pgxpool.Pool, evs ...events.Event) error
}{
	{"Log.Append", func(t *testing.T, log *events.Log, _ *pgxpool.Pool, evs ...events.Event) error {
		_, err := log.Append(t.Context(), evs...)
		return err
	}},
	{"Publish", func(t *testing.T, _ *events.Log, pool *pgxpool.Pool, evs ...events.Event) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := events.Publish(t.Context(), tx, evs...)
			return err
		})
	}},
	{"badged.publish_batch", func(t *testing.T, _ *events.Log, pool *pgxpool.Pool, evs ...events.Event) error {
		_, err := call(t.Context(), pool, publishBatchSQL, encode(t, evs))
		return err
	}},
}

func eachAppender(t *testing.T, test func(t *testing.T, pool *pgxpool.Pool, add func(evs ...events.Event))) {
	for _, a := range appenders {
		t.Run(a.name, func(t *testing.T) {
			log, pool := newLog(t)
			test(t, pool, func(evs ...events.Event) {
				t.Helper()
				if err := a.append(t, log, pool, evs...); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A message to a room is one row in each partition in which the room has members.
func TestRoomsAreRouted(t *testing.T) {
	eachAppender(t, func(t *testing.T, pool *pgxpool.Pool, add func(evs ...events.Event)) {
		add(posted("r", 1)) // before any join
		add(joined("1", "r", u0, u2), joined("2", "other", u3))
		add(posted("r", 2, u0, u1))
		add(events.Event{ID: "left", Source: "/chat", Type: events.RoomLeft, Data: events.Data{ConversationID: "r", UserIDs: []string{u0, u1}}})
		add(events.Event{ID: "recalled", Source: "/chat", Type: events.RoomRecalled, Data: events.Data{ConversationID: "r", Seq: 2}})
		expectLog(t, pool, [partitions][]string{
			{u0 + " joined", "posted 2 " + u0, u0 + " left", "recalled 2"},
			{u1 + " left"},
			{u2 + " joined", "posted 2", "recalled 2"},
			{u3 + " joined"},
		})
	})
}

// The events of a call may depend on each other.
func TestRoomThatIsJoinedInTheSameCall(t *testing.T) {
	eachAppender(t, func(t *testing.T, pool *pgxpool.Pool, add func(evs ...events.Event)) {
		add(joined("1", "r", u0), posted("r", 1), joined("2", "r", u1), posted("r", 2))
		expectLog(t, pool, [partitions][]string{
			{u0 + " joined", "posted 1", "posted 2"},
			{u1 + " joined at 1", "posted 2"},
		})
	})
}

// A message has no effect in partitions in which the room has no members yet, also if
// they join in the same call.
func TestMessagesBeforeTheFirstJoin(t *testing.T) {
	eachAppender(t, func(t *testing.T, pool *pgxpool.Pool, add func(evs ...events.Event)) {
		recalled := events.Event{ID: "recalled", Source: "/chat", Type: events.RoomRecalled, Data: events.Data{ConversationID: "r", Seq: 8}}
		add(posted("other", 9), posted("r", 5), recalled, joined("1", "r", u0), posted("r", 6), joined("2", "r", u0, u1), posted("r", 7), joined("3", "other", u0))
		expectLog(t, pool, [partitions][]string{
			{u0 + " joined", "posted 6", u0 + " joined", "posted 7", u0 + " joined"},
			{u1 + " joined at 6", "posted 7"},
		})
	})
}

// The first members of a partition may have read less than the room has.
func TestRoomThatIsJoinedUpToASeq(t *testing.T) {
	upTo := func(e events.Event, seq int64) events.Event {
		e.Data.UpToSeq = seq
		return e
	}
	eachAppender(t, func(t *testing.T, pool *pgxpool.Pool, add func(evs ...events.Event)) {
		add(upTo(joined("1", "r", u0), 9), upTo(joined("2", "r", u0, u1), 100), joined("3", "r", u0, u2), upTo(joined("4", "r", u0), 200), upTo(joined("5", "r", u3), 90))
		expectLog(t, pool, [partitions][]string{
			{u0 + " joined up to 9", u0 + " joined up to 100", u0 + " joined", u0 + " joined up to 200"},
			{u1 + " joined up to 100 at 9"},
			{u2 + " joined at 100"},
			{u3 + " joined up to 90 at 100"},
		})
	})
}

// Members in a partition that is new to a room have read what others could read.
func TestRoomInANewPartition(t *testing.T) {
	eachAppender(t, func(t *testing.T, pool *pgxpool.Pool, add func(evs ...events.Event)) {
		add(joined("1", "r", u0))
		foldedUpTo(t, pool, "r", 0, 41)
		again := userIn(1, 1)
		explicit := joined("3", "r", u2)
		explicit.Data.UpToSeq = 7
		add(joined("2", "r", u0, u1), joined("2b", "r", again), explicit)
		add(joined("4", "r", userIn(1, 2)))
		expectLog(t, pool, [partitions][]string{
			{u0 + " joined", u0 + " joined"},
			{u1 + " joined at 41", again + " joined", userIn(1, 2) + " joined"},
			{u2 + " joined up to 7 at 41"},
		})
	})
}

// foldedUpTo writes what a projector writes of a room.
func foldedUpTo(t *testing.T, pool *pgxpool.Pool, room string, partition int, last int64) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `
INSERT INTO badged.rooms (changes, last_seq, since, closed_live, closed_all, closed_changes, members, delivered_hour, partition_id, conversation_id, category)
VALUES (1, $1, 0, 0, 0, 0, 1, 0, $2, $3, 'chat')`, last, partition, room); err != nil {
		t.Fatal(err)
	}
}

func TestRoomThatMoreUsersJoinThanAnEventMayName(t *testing.T) {
	log, pool := newLog(t)
	users := make([]string, events.MaxUsers+1)
	for i := range users {
		users[i] = fmt.Sprint("user-", i)
	}
	var bad *events.BatchError
	if _, err := log.Append(t.Context(), joined("1", "r", users...)); !errors.As(err, &bad) {
		t.Errorf("10,001 users joined: %v", err)
	}
	mustAppend(t, log, posted("r", 1))
	mustAppend(t, log, joined("1", "r", users[:events.MaxUsers]...))
	mustAppend(t, log, posted("r", 2))
	for p := range partitions {
		if got := stored(t, pool)[p]; !cmp.Equal(got, []string{"1", "r/2"}) {
			t.Errorf("partition %d has %v", p, got)
		}
	}
}

// A join exists if and only if its transaction commits, also for messages of the
// same transaction.
func TestRoomThatIsJoinedInATransaction(t *testing.T) {
	eachTransaction(t, func(t *testing.T, url string, tx transaction) {
		log, pool := openLog(t, url)
		publish := func(evs ...events.Event) {
			t.Helper()
			if _, err := events.Publish(t.Context(), tx.tx, evs...); err != nil {
				t.Fatal(err)
			}
		}
		mustAppend(t, log, joined("0", "r", u0))
		publish(joined("1", "r", u1))
		publish(posted("r", 1))
		mustAppend(t, log, posted("r", 2))
		if err := tx.rollback(); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, log, posted("r", 3))
		expectLog(t, pool, [partitions][]string{{u0 + " joined", "posted 2", "posted 3"}})
	})
	eachTransaction(t, func(t *testing.T, url string, tx transaction) {
		log, pool := openLog(t, url)
		if _, err := events.Publish(t.Context(), tx.tx, joined("1", "r", u1), posted("r", 1)); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, log, posted("r", 2)) // to a room without members
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, log, posted("r", 3))
		expectLog(t, pool, [partitions][]string{1: {u1 + " joined", "posted 1", "posted 3"}})
	})
}

// Another process adds a partition to a room, after this process has learned of others.
func TestRoomThatAnotherProcessExtends(t *testing.T) {
	url := pgtest.NewDB(t, migrated)
	log, pool := openLog(t, url)
	other, _ := openLog(t, url)
	mustAppend(t, log, joined("1", "r", u0))
	mustAppend(t, log, posted("r", 1)) // log knows the room now
	core := (*eventlog.Log[events.Event])(log)
	rows, err := core.Rows(t.Context(), []events.Event{posted("r", 2)})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, other, joined("2", "r", u1))
	if _, err := core.AppendRows(t.Context(), rows); err == nil {
		t.Error("rows for the former partitions were appended")
	}
	mustAppend(t, log, posted("r", 3))
	mustAppend(t, other, joined("3", "r", u2))
	mustAppend(t, log, posted("r", 4)) // finds out by itself
	foldedUpTo(t, pool, "r", 0, 4)
	mustAppend(t, other, joined("4", "r", u3), posted("r", 5))
	mustAppend(t, log, joined("5", "r", userIn(3, 1))) // not the first there
	expectLog(t, pool, [partitions][]string{
		{u0 + " joined", "posted 1", "posted 3", "posted 4", "posted 5"},
		{u1 + " joined", "posted 3", "posted 4", "posted 5"},
		{u2 + " joined", "posted 4", "posted 5"},
		{u3 + " joined at 4", "posted 5", userIn(3, 1) + " joined"},
	})
}

// A join in a transaction that stays open makes nothing else wait.
func TestJoinsDoNotWaitForEachOther(t *testing.T) {
	log, pool := newLog(t)
	open := begin(t, pool)
	if _, err := events.Publish(t.Context(), open, joined("1", "r", u1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, e := range []events.Event{joined("2", "r", userIn(1, 1)), posted("r", 1)} {
		if _, err := log.Append(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, log, posted("r", 2))
	expectLog(t, pool, [partitions][]string{1: {u1 + " joined", userIn(1, 1) + " joined", "posted 1", "posted 2"}})
}

// A message that is appended after a join has committed is behind it in the
// partition of the new member, whatever else goes on.
func TestNoMessageMissesAMember(t *testing.T) {
	const rooms = 12
	url := pgtest.NewDB(t, migrated)
	pool := newPool(t, url)
	// In each room: who has joined, in the order of partitions.
	var members [rooms][partitions]atomic.Bool
	// By the id of a message: the partitions with members before it was appended.
	var mu sync.Mutex
	expected := map[string][]int{}

	var work errgroup.Group
	for w, add := range []func(log *events.Log, e events.Event) error{
		func(log *events.Log, e events.Event) error {
			_, err := log.Append(t.Context(), e)
			return err
		},
		func(_ *events.Log, e events.Event) error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				_, err := events.Publish(t.Context(), tx, e)
				return err
			})
		},
		func(_ *events.Log, e events.Event) error {
			_, err := call(t.Context(), pool, publishSQL, encode(t, e))
			return err
		},
		func(log *events.Log, e events.Event) error { // of another process
			_, err := log.Append(t.Context(), e, delivered("with "+e.ID, u0, u1))
			return err
		},
	} {
		log, _ := openLog(t, url)
		work.Go(func() error {
			for r := range rooms {
				for n := 0; n < 10 || !members[r][partitions-1].Load(); n++ {
					e := posted(fmt.Sprint("room ", r), int64(1+10_000*w+n))
					var before []int
					for p := range partitions {
						if members[r][p].Load() {
							before = append(before, p)
						}
					}
					if err := add(log, e); err != nil {
						return err
					}
					mu.Lock()
					expected[e.ID] = before
					mu.Unlock()
				}
			}
			return nil
		})
	}
	joiner, _ := openLog(t, url)
	work.Go(func() error {
		for r := range rooms {
			for p := range partitions {
				if _, err := joiner.Append(t.Context(), joined(fmt.Sprint("join ", r, p), fmt.Sprint("room ", r), userIn(p, r))); err != nil {
					return err
				}
				members[r][p].Store(true)
			}
		}
		return nil
	})
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}

	inPartition := map[string]map[int]bool{}
	var hasMembers [partitions]map[string]bool
	for p := range partitions {
		hasMembers[p] = map[string]bool{}
		for _, e := range decodeAll(t, readAll(t, pool, p, events.Position{})) {
			switch e.Type {
			case events.RoomJoined:
				hasMembers[p][e.Data.ConversationID] = true
			case events.RoomPosted:
				if inPartition[e.ID] == nil {
					inPartition[e.ID] = map[int]bool{}
				}
				inPartition[e.ID][p] = hasMembers[p][e.Data.ConversationID]
			}
		}
	}
	behind := 0
	for id, before := range expected {
		for _, p := range before {
			behind++
			if behindJoin, ok := inPartition[id][p]; !ok {
				t.Errorf("message %s is not in partition %d, which had a member", id, p)
			} else if !behindJoin {
				t.Errorf("message %s is before the join in partition %d", id, p)
			}
		}
	}
	if behind < rooms*partitions {
		t.Errorf("only %d messages were appended behind joins", behind)
	}
}
