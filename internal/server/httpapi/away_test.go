package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/internal/user/erasure"
	"github.com/badged/badged/pubsub"
)

// operationsAway are the operations while a shard is unavailable.
type operationsAway struct{ httpapi.Operations }

func (operationsAway) Erase(context.Context, operations.Operator, string, operations.Archives) (erasure.Erased, error) {
	return erasure.Erased{}, errors.Join(&cluster.Fault{Kind: cluster.Away, Database: "b", Partitions: []int{6, 7}, Err: errors.New("connect to 10.0.0.7: refused")})
}

func (operationsAway) Jobs(context.Context, operations.Kind, int, int) ([]operations.Job, error) {
	return nil, nil
}

// A list says which shards are missing from it.
func TestListsNameShardsThatAreAway(t *testing.T) {
	api := build(t, httpapi.Config{Operations: operationsAway{}, Away: func() []string { return []string{"b"} }})
	if a := call(t, api, adminKey, "GET rebuilds", ""); a.status != http.StatusOK || strings.TrimSpace(a.body) != `{"rebuilds":[],"away":["b"]}` {
		t.Errorf("it answers %d %s", a.status, a.body)
	}
}

// Operators are told which shard is unavailable, and not what its address is.
func TestOperationWhileAShardIsAway(t *testing.T) {
	a := call(t, newOperationsAPI(t, operationsAway{}), adminKey, "POST users/ada/erase", "")
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" ||
		!strings.Contains(a.body, "shard b, which has the partitions 6-7, is unavailable; ") || strings.Contains(a.body, "10.0.0.7") {
		t.Errorf("it answers %d %s", a.status, a.body)
	}
}

// marked returns the marks of 16 partitions of which one is marked.
func marked(partition int) []bool {
	marks := make([]bool, 16)
	marks[partition] = true
	return marks
}

// halfRead are badges while the shard of ben is away: those of others can be read, and
// waited for.
type halfRead struct {
	fakeBadges

	err error
}

func (b *halfRead) unread(userIDs []string) error {
	if !slices.Contains(userIDs, "ben") {
		return nil
	}
	return &cluster.PartialFailure{UserIDs: []string{"ben"}, Partitions: marked(6), Err: b.err}
}

func (b *halfRead) ShownBadges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	all, _ := b.fakeBadges.ShownBadges(ctx, userIDs)
	for i := range all {
		if all[i].UserID == "ben" {
			all[i] = pubsub.Badge{UserID: "ben"} // as of a user without events
		}
	}
	return all, b.unread(userIDs)
}

func (b *halfRead) FoldedAt(ctx context.Context, userIDs []string, position string) (bool, error) {
	if err := b.unread(userIDs); err != nil {
		return false, err
	}
	return b.fakeBadges.FoldedAt(ctx, userIDs, position)
}

// If a shard is unavailable, a query for badges returns the badges of other shards and names the
// users whose badges could not be read. It does not return 0 for them.
func TestBadgesWhileAShardIsAway(t *testing.T) {
	away := &cluster.Fault{Kind: cluster.Away, Database: "b", Partitions: []int{6, 7}, Err: errors.New("connect to 10.0.0.7: refused")}
	query := func(b *halfRead, body string) (status int, answer struct {
		Detail  string
		Badges  []pubsub.Badge
		Lacking *struct {
			Partitions []int
			Of         int
			UserIDs    []string `json:"user_ids"`
		}
	}, header http.Header,
	) {
		t.Helper()
		a := post(t, build(t, httpapi.Config{Badges: b}), "/v1/badges/query", plain, body)
		if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
			t.Fatalf("%s: %v", a.body, err)
		}
		return a.status, answer, a.header
	}
	for _, body := range []string{`{"user_ids":["chloe","ben","ada"]}`, `{"user_ids":["chloe","ben","ada","ben"],"at_least":"7"}`} {
		status, answer, header := query(&halfRead{fakeBadges{unfolded: 2}, away}, body)
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") != "5" || answer.Lacking == nil {
			t.Fatalf("%s is answered %d %v %+v", body, status, header, answer)
		}
		if diff := cmp.Diff([]pubsub.Badge{badgeOf("chloe"), badgeOf("ada")}, answer.Badges); diff != "" {
			t.Errorf("badges (-want +got):\n%s", diff)
		}
		if l := answer.Lacking; !slices.Equal(l.UserIDs, []string{"ben"}) || !slices.Equal(l.Partitions, []int{6}) || l.Of != 16 {
			t.Errorf("lacking is %+v", l)
		}
		if want := "shard b, which has the partitions 6-7, is unavailable; badges has the badges of all other users; repeat the request for the users of lacking when the shard is back"; answer.Detail != want {
			t.Errorf("the detail is %q, want %q", answer.Detail, want)
		}
	}
	// Of ben alone there is nothing, and that is said, not left out.
	if status, answer, _ := query(&halfRead{err: away}, `{"user_ids":["ben"],"at_least":"7"}`); status != http.StatusServiceUnavailable || answer.Badges == nil || len(answer.Badges) > 0 || answer.Lacking == nil {
		t.Errorf("for ben alone it answers %d %+v", status, answer)
	}
	// A fault of the server itself says nothing about users.
	if status, answer, _ := query(&halfRead{err: errors.New("it is broken")}, `{"user_ids":["chloe","ben"]}`); status != http.StatusInternalServerError || answer.Badges != nil || answer.Lacking != nil {
		t.Errorf("an internal error is answered %d %+v", status, answer)
	}
}
