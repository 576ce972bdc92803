package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

// While a shard is unavailable, another shard stores the message to a room as a hint. It is
// replayed once the shard is available again, wherever its partitions are by then, and its position
// is folded only after that.
func TestRoomMessagesWaitForAShard(t *testing.T) {
	server := pgtest.Borrow(t)
	all := databases(t, "a", "b")
	all = append(all, connect(t, "c", server.NewDB(t, schematest.Migrated(partitions))))
	form(t, all) // a has 0 and 1, b 2 and 3, c 4 and 5
	c := open(t, all)
	appender := cluster.NewAppender(c, func(s *cluster.Database) events.Append { return s.Log.AppendOwn })
	reader := cluster.NewReader(c)
	gone := userOf(t, 4)
	join := events.Event{ID: "join", Source: "test", Type: events.RoomJoined, Data: events.Data{ConversationID: "lobby", UserIDs: []string{userOf(t, 0), gone}}}
	if _, err := appender.Append(t.Context(), join); err != nil {
		t.Fatal(err)
	}
	post := func(id string) events.Event {
		return events.Event{ID: id, Source: "test", Type: events.RoomPosted, Data: events.Data{ConversationID: "lobby", Seq: 1, SenderID: "x"}}
	}
	rows := func(d cluster.Candidate, partition int) string {
		t.Helper()
		return read(t.Context(), t, d, fmt.Sprintf(`SELECT count(*)::text FROM badged.%s`, events.Topic(partition)))
	}
	waiting := func() string {
		t.Helper()
		return read(t.Context(), t, all[0], `SELECT count(*)::text FROM badged.hints`)
	}

	server.Kill()
	// The shard does not count as unavailable yet.
	r, err := appender.Append(t.Context(), post("1"))
	if err != nil || !strings.HasSuffix(r.Position(), ".c.1@a") {
		t.Fatalf("post: %s, %v", r.Position(), err)
	}
	await(t, c, func() bool { return c.Database("c").Err() != nil })
	if _, err := appender.Append(t.Context(), post("2")); err != nil {
		t.Fatal(err)
	}
	if got := rows(all[0], 0) + " " + waiting(); got != "3 2" {
		t.Errorf("rows on a, and those that wait: %s", got)
	}
	joined, err := cluster.JoinPositions(r.Position(), "0.c.1@a.c.7@a")
	if err != nil || !strings.HasSuffix(joined, ".c.7@a") || strings.Contains(joined, ".c.1@a") {
		t.Errorf("joined: %s, %v", joined, err)
	}
	var away *cluster.Fault
	message := delivered("m", gone)
	if _, err := appender.Append(t.Context(), post("3"), message); !errors.As(err, &away) || away.Database != "c" {
		t.Errorf("with a message for a user of the lost shard: %v", err)
	} else if lacking(partial(err)) != "4-5" {
		t.Errorf("partitions that lack events: %s", lacking(partial(err)))
	}
	if _, err := appender.WithAppends(func(s *cluster.Database) events.Append { return s.Log.AppendOwn }).Append(t.Context(), post("3")); !errors.As(err, &away) {
		t.Errorf("an append that does more: %v", err)
	}
	if _, err := reader.FoldedAt(t.Context(), []string{gone}, r.Position()); !errors.As(err, &away) {
		t.Errorf("a position whose messages wait for a shard that is away: %v", err)
	}

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, c, func() bool { return c.Database("c").Err() == nil })
	if is, err := reader.FoldedAt(t.Context(), []string{gone}, r.Position()); is || err != nil {
		t.Errorf("before it is delivered: %t, %v", is, err)
	}
	// A partition that has moved since has not got the message either.
	move(t, all[2], all[1], 5, 2)
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextOf(t)
	done := make(chan error, 1)
	go func() { done <- appender.ReplayHints(ctx) }()
	for waiting() != "0" {
		if ctx.Err() != nil {
			t.Fatal("it still waits")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := rows(all[2], 4) + " " + rows(all[1], 5); got != "2 1" {
		t.Errorf("rows of partitions 4 and 5: %s", got)
	}
}

// Hints for a shard are replayed before users join a room there, so that new members have read the
// messages in them, as new members on other shards have.
func TestJoinsFollowWhatWaits(t *testing.T) {
	t.Parallel()
	h := newHall(t)
	storeHint(t, h.all[0], "b", 0)
	if _, err := h.cluster.Database("a").Log.Append(t.Context(), message("lobby", 1)); err != nil {
		t.Fatal(err)
	}
	h.seqs["lobby"] = 1
	h.join(t, "lobby", foldtest.User(0, 0), foldtest.User(2, 0))
	if left := hintsOn(t, h.all[0]); left != "" {
		t.Errorf("messages wait for %q", left)
	}
	h.post(t, "after they have joined", "lobby")
	h.check(t)
}

// The first member on a shard gets the state of the room from the other shards: messages above its
// read position, the last message and the category.
func TestTheFirstMemberOnAShard(t *testing.T) {
	t.Parallel()
	h := newHall(t)
	early, late := foldtest.User(0, 0), foldtest.User(2, 0)
	up := func(user string) events.Event {
		return foldtest.Event("join "+user, events.RoomJoined, "r", foldtest.UpTo(1), user)
	}
	last := message("r", 3)
	last.Data.Category = "news"
	for _, e := range []events.Event{up(early), message("r", 1), message("r", 2), last, up(late)} {
		if _, err := h.appender.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	h.want[early], h.want[late] = 2, 2
	h.check(t)
	reader := cluster.NewReader(h.cluster)
	for _, user := range []string{early, late} {
		if b, err := reader.Badge(t.Context(), user); err != nil || b.Categories["news"].Total != 2 {
			t.Errorf("%s has %+v, want 2 of the category news: %v", user, b, err)
		}
	}
}
