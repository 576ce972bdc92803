package events_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
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

// A message to a room is one row in each partition, with or without members, in the order of
// the call. The joins have nothing but what the publisher gave.
func TestRoomsAreInEveryPartition(t *testing.T) {
	eachAppender(t, func(t *testing.T, pool *pgxpool.Pool, add func(evs ...events.Event)) {
		upTo := joined("3", "r", u1)
		upTo.Data.UpToSeq = math.MaxInt64
		add(posted("r", 1)) // before any join
		add(joined("1", "r", u0, u2), posted("r", 2, u0, u1), joined("2", "other", u3), upTo)
		add(events.Event{ID: "left", Source: "/chat", Type: events.RoomLeft, Data: events.Data{ConversationID: "r", UserIDs: []string{u0, u1}}})
		add(events.Event{ID: "recalled", Source: "/chat", Type: events.RoomRecalled, Data: events.Data{ConversationID: "r", Seq: 2}})
		expectLog(t, pool, [partitions][]string{
			{"posted 1", u0 + " joined", "posted 2 " + u0, u0 + " left", "recalled 2"},
			{"posted 1", "posted 2 " + u1, u1 + " joined up to 9223372036854775807", u1 + " left", "recalled 2"},
			{"posted 1", u2 + " joined", "posted 2", "recalled 2"},
			{"posted 1", "posted 2", u3 + " joined", "recalled 2"},
		})
	})
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
		if got := stored(t, pool)[p]; !cmp.Equal(got, []string{"r/1", "1", "r/2"}) {
			t.Errorf("partition %d has %v", p, got)
		}
	}
}
