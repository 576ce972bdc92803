//go:build chaos

package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/pubsub"
)

// settling yields until the caller leaves the loop, and fails the test if that takes too long.
// details, unless nil, describes the progress for the failure. Meanwhile, settling restarts
// programs that end by themselves.
func (c *chaos) settling(what string, details func() string) func(yield func() bool) {
	return func(yield func() bool) {
		c.t.Helper()
		deadline := time.After(chaosSettles)
		pause := time.NewTicker(100 * time.Millisecond)
		defer pause.Stop()
		for yield() {
			c.revive(func(*chaosProgram) bool { return false })
			select {
			case <-pause.C:
			case <-deadline:
				if details != nil {
					what += ":\n" + details()
				}
				c.t.Fatalf("waited in vain for %s", what)
			}
		}
	}
}

// check waits until every acknowledged event has arrived, and compares the state of all users, as
// every part of the system shows it, with the model.
func (c *chaos) check() {
	c.t.Helper()
	c.note("checking")
	c.nothingWaits()
	users := map[string]string{}
	for n := range chaosUsers {
		users[chaosUser(n)] = wantOf(c.talks, chaosUser(n))
	}
	for _, s := range c.servers {
		for _, user := range slices.Sorted(maps.Keys(users)) {
			c.awaitState(s, user, users[user])
		}
	}
	for n := range chaosGhosts {
		users[chaosGhost(n)] = foldtest.State{}.String()
		for range c.settling("the erasure of "+chaosGhost(n), nil) { // an erasure may precede the last events, so erase until nothing is left
			c.succeeds(c.withArchive("user", "erase", chaosGhost(n))...)
			if answer, err := c.ask(c.servers[0], chaosGhost(n)); err == nil && answer.String() == users[chaosGhost(n)] {
				break
			}
		}
	}
	c.awaitApps()
	c.told()
	if how := c.succeeds("deadletters", "list"); strings.Contains(how.out, "{") {
		c.t.Errorf("dead letters:\n%s", how.out)
	}
	for _, args := range [][]string{{"verify", "--quiet"}, {"rebuild", "--quiet"}, c.archiving(), {"verify", "--quiet", "--archive=" + c.archive}} {
		if how := c.succeeds(args...); args[0] != "archive" && !strings.Contains(how.out, "no difference") {
			c.t.Errorf("%v says\n%s", args, how.out)
		}
	}
	for user, want := range users {
		c.awaitState(c.servers[0], user, want)
	}
	c.t.Logf("seed %d: %d events, %d faults, %d moves and splits", c.seed, c.acknowledged.Load(), c.faults, c.moves)
}

// succeeds runs a command until it succeeds: background work of other processes may block it for
// a moment.
func (c *chaos) succeeds(args ...string) (how said) {
	c.t.Helper()
	for range c.settling(strings.Join(args, " "), nil) {
		if how = c.run(chaosSettles, args...); how.code == 0 {
			break
		}
	}
	return how
}

// nothingWaits waits until the outbox is empty and no shard stores hints.
func (c *chaos) nothingWaits() {
	c.t.Helper()
	outbox := pgtest.Connect(c.t, c.outboxURL)
	for range c.settling("an empty outbox", nil) {
		if valueIn[int](c.t, outbox, `SELECT count(*)::int FROM badged.outbox`) == 0 {
			break
		}
	}
	if n := valueIn[int](c.t, outbox, `SELECT count(*)::int FROM badged.outbox_refused`); n > 0 {
		c.t.Errorf("the relay has set %d events aside", n)
	}
	for _, url := range c.urls {
		shard := pgtest.Connect(c.t, url)
		for range c.settling("no waiting messages", nil) {
			if valueIn[int](c.t, shard, `SELECT count(*)::int FROM badged.hints`) == 0 {
				break
			}
		}
	}
}

// chaosAnswer is the API's answer about a user.
type chaosAnswer struct {
	Epoch   string
	Version int64
	pubsub.Numbers
	Categories    map[string]pubsub.Numbers
	Levels        map[string]string
	Conversations []chaosConversation
}

type chaosConversation struct {
	ID       string `json:"conversation_id"`
	Unread   int64
	Mentions int64
	First    int64 `json:"first_unread_seq"`
	Read     int64 `json:"read_seq"`
	Last     int64 `json:"last_seq"`
	Level    events.Level
	Category string
	Marked   bool `json:"marked_unread"`

	Seen         int64
	SeenMentions int64 `json:"seen_mentions"`
	SeenSeq      int64 `json:"seen_seq"`
}

// String returns the answer in the form in which wantOf returns the model's state.
func (a *chaosAnswer) String() string {
	s := foldtest.State{Numbers: a.Numbers, Categories: a.Categories, Levels: a.Levels}
	for _, c := range a.Conversations {
		s.Conversations = append(s.Conversations, foldtest.ConversationState{
			ID: c.ID, Unread: c.Unread, First: c.First, Mentions: c.Mentions, Read: c.Read, Last: c.Last, Level: c.Level, Category: c.Category, Marked: c.Marked,
			Unseen: c.Unread - c.Seen, UnseenMentions: c.Mentions - c.SeenMentions, Seen: max(c.Read, c.SeenSeq),
		})
	}
	return s.String()
}

// ask reads the state of a user from a server.
func (c *chaos) ask(s *chaosProgram, user string) (a chaosAnswer, err error) {
	for _, path := range []string{"/badge", "/conversations?limit=500"} {
		ctx, cancel := context.WithTimeout(c.ctx, chaosPatience)
		defer cancel()
		status, _, body, err := exchangeOnce(ctx, publisherKey, http.MethodGet, s.url+"/v1/users/"+user+path, "", "")
		if err != nil {
			return a, err
		}
		if status != http.StatusOK {
			return a, fmt.Errorf("%d: %s", status, body)
		}
		if err := json.Unmarshal([]byte(body), &a); err != nil {
			return a, fmt.Errorf("%s: %w", body, err)
		}
	}
	return a, nil
}

// awaitState waits until a server returns the wanted state of a user.
func (c *chaos) awaitState(s *chaosProgram, user, want string) {
	c.t.Helper()
	var got string
	for range c.settling("the state of "+user, func() string {
		return fmt.Sprintf("%s says\n%s\nand must say\n%s\n%s", s.name, got, want, c.explain(user, got, want))
	}) {
		answer, err := c.ask(s, user)
		if err != nil {
			got = err.Error()
			continue
		}
		if got = answer.String(); got == want {
			return
		}
	}
}

// explain returns the explanations of badged for the wrong conversations of a user.
func (c *chaos) explain(user, got, want string) string {
	var all []string
	for _, line := range strings.Split(want, "\n")[1:] {
		if id, _, is := strings.Cut(line, ":"); is && !strings.Contains(got, line) {
			all = append(all, c.run(chaosCommand, c.withArchive("user", "explain", user, "--conversation="+id)...).out)
		}
	}
	return strings.Join(all, "\n")
}

// awaitApps waits until each app shows what the API says.
func (c *chaos) awaitApps() {
	c.t.Helper()
	for _, a := range c.apps {
		var answer chaosAnswer
		for range c.settling("the state of "+a.user, nil) {
			var err error
			if answer, err = c.ask(c.servers[0], a.user); err == nil {
				break
			}
		}
		unread := map[string]int64{}
		for _, one := range answer.Conversations {
			unread[one.ID] = one.Unread
			if one.Marked {
				unread[one.ID] = max(1, one.Unread)
			}
		}
		want := shown(answer.Epoch, answer.Version, answer.Total, unread)
		for range c.settling("an app of "+a.user+" to show "+want, a.shows) {
			if a.shows() == want {
				break
			}
		}
	}
}

// told waits until `badged tail` has published every event of users who were not erased, and the
// last badge of each such user.
func (c *chaos) told() {
	c.t.Helper()
	client := newRedisClient(c.t, c.broker)
	var missing []string
	for range c.settling("the tail to publish", func() string { return strings.Join(missing, "\n") }) {
		all := tailed(c.t, client, "told")
		have := map[string]bool{}
		for _, e := range all {
			have[e.ID] = true
		}
		missing = missing[:0]
		for _, talk := range c.talks {
			for _, e := range talk.acknowledged {
				ghosts := len(e.Data.UserIDs) > 0 && !slices.ContainsFunc(e.Data.UserIDs, func(user string) bool { return strings.HasPrefix(user, "user-") })
				if !have[e.ID] && !ghosts {
					missing = append(missing, e.ID)
				}
			}
		}
		for n := range chaosUsers {
			answer, err := c.ask(c.servers[0], chaosUser(n))
			if last, _ := lastBadge(all, chaosUser(n)); err != nil || answer.Version > 0 && (last.Data.Total != answer.Total || last.Data.Version != answer.Version || last.Data.Epoch != answer.Epoch) {
				missing = append(missing, "the badge of "+chaosUser(n))
			}
		}
		if len(missing) == 0 {
			return
		}
	}
}
