package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/foldtest"
)

// A call joins members on two shards to a room, posts to it, and has a message for another user.
// One shard fails; the other one folds all events but the messages to the room. Once the call is
// repeated, the members on both shards count these.
func TestMembersOfARepeatedCallCountItsMessages(t *testing.T) {
	t.Parallel()
	h := newHall(t)
	var failure error = &pgconn.PgError{Code: "53100", Message: "the disk is full"}
	appender := cluster.NewAppender(h.cluster, func(s *cluster.Database) events.Append {
		return func(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
			if s.Name == "a" && failure != nil {
				return events.Receipt{}, failure
			}
			return s.Log.Append(ctx, evs...)
		}
	})
	other := foldtest.User(2, 1)
	call := append(h.joinAndPost(), foldtest.Deliver("other", 1, other))
	_, err := appender.Append(t.Context(), call...)
	if !errors.Is(err, failure) || !errors.Is(err, cluster.ErrHeldBack) {
		t.Fatalf("the first attempt ends with %v", err)
	}
	if lack, ok := errors.AsType[*cluster.PartialFailure](err); !ok || slices.Contains(lack.Partitions, false) {
		t.Errorf("lacking are %v, want all partitions, since none has the messages to the room", lack)
	}
	h.b.AwaitFolded(t)
	reader := cluster.NewReader(h.cluster)
	for user, want := range map[string]int64{other: 1, h.members["r"][1]: 0} {
		if badge, err := reader.Badge(t.Context(), user); err != nil || badge.Total != want {
			t.Errorf("meanwhile %s has a total of %d, want %d: %v", user, badge.Total, want, err)
		}
	}
	failure, h.want[other] = nil, 1
	if _, err := appender.Append(t.Context(), call...); err != nil {
		t.Fatal(err)
	}
	h.check(t)
}

// One of the shards gets its part after the other has folded its own.
func TestMembersOnALateShardCountTheMessagesOfTheCall(t *testing.T) {
	t.Parallel()
	h := newHall(t)
	has := make(chan bool, 10)
	appender := cluster.NewAppender(h.cluster, func(s *cluster.Database) events.Append {
		return func(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
			if s.Name == "a" {
				if <-has {
					h.b.AwaitFolded(t) //nolint:contextcheck // it uses that of the test
				}
				return s.Log.Append(ctx, evs...)
			}
			r, err := s.Log.Append(ctx, evs...)
			has <- err == nil
			return r, err
		}
	})
	if _, err := appender.Append(t.Context(), h.joinAndPost()...); err != nil {
		t.Fatal(err)
	}
	h.check(t)
}

// joinAndPost returns a call that joins members on both shards to a room and posts to it.
func (h *hall) joinAndPost() []events.Event {
	h.members["r"] = []string{foldtest.User(0, 0), foldtest.User(2, 0)}
	return []events.Event{foldtest.Event("join", events.RoomJoined, "r", nil, h.members["r"]...), h.next("r"), h.next("r")}
}

// The first user of a shard to join a room has read the earlier messages of the call, which the
// shard does not get: posted again, they change nothing.
func TestJoinsReadUpToTheMessagesOfTheirCall(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		before, staged := n&1 > 0, n&2 > 0
		t.Run(fmt.Sprintf("a room from before %t, in another stage %t", before, staged), func(t *testing.T) {
			t.Parallel()
			h := newHall(t)
			member, newcomer := foldtest.User(0, 0), foldtest.User(2, 0)
			var call []events.Event
			if before {
				h.join(t, "r", member)
			} else {
				call = append(call, foldtest.Event("first", events.RoomJoined, "r", nil, member))
				h.members["r"] = []string{member}
			}
			call = append(call, h.next("r"), h.next("r"))
			if staged { // another room ends the first stage
				call = append(call, foldtest.Event("other", events.RoomJoined, "s", nil, foldtest.User(1, 0)), message("s", 1))
				h.want[foldtest.User(1, 0)] = 1
			}
			call = append(call, foldtest.Event("second", events.RoomJoined, "r", nil, newcomer))
			h.members["r"] = append(h.members["r"], newcomer)
			call = append(call, h.next("r"))
			for range 2 {
				if _, err := h.appender.Append(t.Context(), call...); err != nil {
					t.Fatal(err)
				}
				h.check(t)
			}
		})
	}
}

func TestStages(t *testing.T) {
	t.Parallel()
	join := func(room string) events.Event { return foldtest.Event("j"+room, events.RoomJoined, room, nil, "ann") }
	deliver := foldtest.Deliver("r", 1, "ann")
	for name, c := range map[string]struct {
		evs  []events.Event
		want []int
	}{
		"messages alone":            {[]events.Event{message("r", 1), deliver, message("r", 2)}, []int{3}},
		"a message behind a join":   {[]events.Event{join("r"), deliver, message("r", 1), message("r", 2)}, []int{2, 4}},
		"a message before a join":   {[]events.Event{message("r", 1), join("r")}, []int{2}},
		"a message of another room": {[]events.Event{join("r"), message("s", 1)}, []int{2}},
		"several":                   {[]events.Event{join("r"), join("s"), message("s", 1), message("r", 1), join("s"), message("s", 2)}, []int{2, 5, 6}},
	} {
		if got := cluster.SplitAtJoins(c.evs); !slices.Equal(got, c.want) {
			t.Errorf("%s: the stages end at %v, want %v", name, got, c.want)
		}
	}
}
