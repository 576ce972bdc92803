package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/httpapi"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/projector/erasure"
)

// operationsAway are the operations while a shard is away.
type operationsAway struct{ httpapi.Operations }

func (operationsAway) Erase(context.Context, admin.Operator, string) (erasure.Erased, error) {
	return erasure.Erased{}, errors.Join(&operators.AwayError{Shard: "b", Partitions: []int{6, 7}, Err: errors.New("connect to 10.0.0.7: refused")})
}

func (operationsAway) Jobs(context.Context, admin.Kind, int, int) ([]admin.Job, error) {
	return nil, nil
}

// A list says which shards are missing from it.
func TestListsNameShardsThatAreAway(t *testing.T) {
	api, err := httpapi.New(httpapi.Config{
		Appender: &appender{}, Badges: &fakeBadges{}, Tokens: tokens{}, Operations: operationsAway{}, Away: func() []string { return []string{"b"} },
		Keys: mustKeys(t, "root=another", "ops="+adminKey), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := call(t, api, adminKey, "GET rebuilds", ""); a.status != http.StatusOK || strings.TrimSpace(a.body) != `{"rebuilds":[],"away":["b"]}` {
		t.Errorf("it answers %d %s", a.status, a.body)
	}
}

// Operators are told which shard is away, and not what its address is.
func TestOperationWhileAShardIsAway(t *testing.T) {
	a := call(t, newOperationsAPI(t, operationsAway{}), adminKey, "POST users/ada/erase", "")
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" ||
		!strings.Contains(a.body, "shard b, which has the partitions 6-7, is away; ") || strings.Contains(a.body, "10.0.0.7") {
		t.Errorf("it answers %d %s", a.status, a.body)
	}
}
