package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// largeBadges are badges of 40 KB. Reads after the first that many fail, or wait.
type largeBadges struct {
	fakeBadges

	reads, good atomic.Int64
	fails       error
	wait        func(context.Context) error
}

func (b *largeBadges) ShownBadges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	all := make([]pubsub.Badge, len(userIDs))
	for i, id := range userIDs {
		all[i] = pubsub.Badge{UserID: id, Categories: map[string]pubsub.Numbers{strings.Repeat("x", 40_000): {Total: 1}}}
	}
	if b.reads.Add(1) <= b.good.Load() {
		return all, nil
	}
	if b.wait != nil {
		return all, b.wait(ctx)
	}
	return all, b.fails
}

// queryLarge asks for the badges of 500 users over a socket. began is called with the first
// byte.
func queryLarge(t *testing.T, b *largeBadges, began func()) (status int, answer []byte, err error) {
	t.Helper()
	server := httptest.NewServer(build(t, httpapi.Config{Badges: b}))
	defer server.Close()
	ids := make([]string, 500)
	for i := range ids {
		ids[i] = fmt.Sprintf(`"u%d"`, i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/badges/query", strings.NewReader(`{"user_ids":[`+strings.Join(ids, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+publisherKey)
	r.Header.Set("Content-Type", "application/json")
	res, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, 1)
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatal(err)
	}
	began()
	rest, err := io.ReadAll(res.Body)
	return res.StatusCode, append(first, rest...), err
}

// A long answer is sent while it is read, so that it is never held as a whole. If the rest
// cannot be read, the connection breaks: a part never looks like a whole.
func TestLongAnswersAreSentWhileTheyAreRead(t *testing.T) {
	sent := make(chan struct{})
	b := &largeBadges{wait: func(ctx context.Context) error {
		select {
		case <-sent:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	b.good.Store(1)
	status, text, err := queryLarge(t, b, func() { close(sent) })
	var all struct{ Badges []pubsub.Badge }
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || status != http.StatusOK || len(all.Badges) != 500 || all.Badges[0].UserID != "u0" || all.Badges[499].UserID != "u499" {
		t.Errorf("%d with %d badges: %v", status, len(all.Badges), err)
	}

	away := &cluster.PartialFailure{UserIDs: []string{"u60"}, Partitions: marked(events.PartitionOf("u60", 16)), Err: &cluster.Fault{Kind: cluster.Away, Database: "b", Err: errors.New("refused")}}
	for _, fails := range []error{errors.New("it is broken"), away} {
		b := &largeBadges{fails: fails}
		b.good.Store(1)
		if status, text, err := queryLarge(t, b, func() {}); err == nil || status != http.StatusOK || json.Valid(text) {
			t.Errorf("an answer whose rest cannot be read (%v) is %d, %d bytes, %v", fails, status, len(text), err)
		}
	}
	// If it has not begun, the error is told.
	if status, text, err := queryLarge(t, &largeBadges{fails: errors.New("it is broken")}, func() {}); err != nil || status != http.StatusInternalServerError {
		t.Errorf("an answer that has not begun is %d %s, %v", status, text, err)
	}
}

// An error lists the badges that fit, and names all other users to be asked for again.
func TestBadgesBesideAnError(t *testing.T) {
	b := &largeBadges{fails: &cluster.PartialFailure{UserIDs: []string{"u0"}, Partitions: marked(events.PartitionOf("u0", 16)), Err: &cluster.Fault{Kind: cluster.Away, Database: "b", Err: errors.New("refused")}}}
	status, text, err := queryLarge(t, b, func() {})
	var part struct {
		Badges  []pubsub.Badge
		Lacking struct {
			Partitions []int
			UserIDs    []string `json:"user_ids"`
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &part)
	}
	if err != nil || status != http.StatusServiceUnavailable || len(part.Badges) != 49 || len(part.Lacking.UserIDs) != 451 || b.reads.Load() != 1 {
		t.Fatalf("with a shard away it is %d with %d badges and %d others after %d reads: %v", status, len(part.Badges), len(part.Lacking.UserIDs), b.reads.Load(), err)
	}
	for _, id := range part.Lacking.UserIDs {
		if !slices.Contains(part.Lacking.Partitions, events.PartitionOf(id, 16)) {
			t.Errorf("the partition of %s is not among %v", id, part.Lacking.Partitions)
		}
	}
}

// A page of conversations has less than 1.5 MiB, and a list of devices less than 1 MiB, however long the ids
// are and whatever is escaped in them.
func TestListsAreBounded(t *testing.T) {
	id := strings.Repeat("<", events.MaxIDBytes)
	c := pubsub.Conversation{
		ConversationID: id, Unread: math.MaxInt64, Mentions: math.MaxInt64, FirstUnreadSeq: math.MaxInt64, ReadSeq: math.MaxInt64, LastSeq: math.MaxInt64,
		Level: "direct_mentions", LevelUntil: time.Now(), Category: strings.Repeat("<", events.MaxCategoryBytes), MarkedUnread: true, Version: math.MaxInt64,
	}
	f := newFixture(t)
	f.badges.pages = map[string]page{"": {conversations: slices.Repeat([]pubsub.Conversation{c}, badges.MaxPage), next: id}}
	a := get(t, f, "/v1/users/ada/conversations?limit=500")
	if a.status != http.StatusOK || len(a.body) >= 3<<19 {
		t.Errorf("%d with %d bytes", a.status, len(a.body))
	}
	d := httpapi.Device{DeviceID: id, Platform: "unifiedpush", App: strings.Repeat("<", 64), Environment: "production", Shows: "conversations:" + c.Category, Token: strings.Repeat("<", 253)}
	b, err := json.Marshal(slices.Repeat([]httpapi.Device{d}, outbound.MaxDevices))
	if err != nil || len(b) >= 1<<20 {
		t.Errorf("devices have %d bytes, %v", len(b), err)
	}
}
