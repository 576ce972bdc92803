package operations_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/notify/seal"
	"github.com/badged/badged/internal/notify/webhook"
	"github.com/badged/badged/internal/operations"
)

// newCluster returns a cluster of three shards with two partitions each.
func newCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	return clusterOf(t, pgtest.NewDB(t, schematest.Migrated(6)), pgtest.NewDB(t, schematest.Migrated(6)), pgtest.NewDB(t, schematest.Migrated(6)))
}

// clusterOf returns a cluster of the shards a, b and so on.
func clusterOf(t *testing.T, urls ...string) *cluster.Cluster {
	t.Helper()
	var databases []cluster.Candidate
	for i, url := range urls {
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		databases = append(databases, cluster.Candidate{Name: string(rune('a' + i)), Pool: pool})
	}
	if _, err := cluster.Form(t.Context(), slices.Clone(databases)); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Open(t.Context(), cluster.Config{Databases: databases})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// over returns the operations on a cluster.
func over(c *cluster.Cluster) *operations.Operations {
	return operations.New(operations.Config{Cluster: c})
}

func webhooksOf(c *cluster.Cluster) *operations.Webhooks {
	return operations.NewWebhooks(operations.WebhooksConfig{Cluster: c, Box: new(seal.Box), Caller: consent{}})
}

// Pages of the merged trail are in the order of time, whatever their size, and have each
// action once; also those that began at the same time.
func TestPagesOfTheAuditTrail(t *testing.T) {
	c := newCluster(t)
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const actions = 12
	for i := range actions {
		s := c.Databases()[i*7%3]
		if _, err := s.Pool.Exec(t.Context(), `INSERT INTO badged.audit (at, who, via, action, arguments) VALUES ($1, 'ops', 'cli', $2, '{}')`,
			began.Add(time.Duration(i/2)*time.Second), fmt.Sprint("action ", i)); err != nil {
			t.Fatal(err)
		}
	}
	for limit := 1; limit <= actions+1; limit++ {
		seen := map[string]bool{}
		before, last := int64(0), time.Now()
		for {
			page, err := over(c).Audit(t.Context(), before, limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			for _, e := range page {
				if e.At.After(last) || seen[e.Action] || e.Shard == "" {
					t.Errorf("with pages of %d, %s of shard %q comes behind %s, seen: %v", limit, e.Action, e.Shard, last, seen[e.Action])
				}
				seen[e.Action], last, before = true, e.At, e.ID
			}
		}
		if len(seen) != actions {
			t.Errorf("pages of %d have %d actions, want %d", limit, len(seen), actions)
		}
	}
	// An id that is gone comes before smaller ones only.
	if page, err := over(c).Audit(t.Context(), 1, actions); err != nil || len(page) != 0 {
		t.Errorf("before an action that is gone: %v, %v", page, err)
	}
}

// Merged pages are bounded in bytes too.
func TestPagesOfLargeActions(t *testing.T) {
	c := newCluster(t)
	for i := range 6 {
		if _, err := c.Databases()[i%3].Pool.Exec(t.Context(), `INSERT INTO badged.audit (who, via, action, arguments)
			VALUES ('ops', 'cli', 'deadletters.discard', json_build_object('payload', repeat('x', 3 << 20)))`); err != nil {
			t.Fatal(err)
		}
	}
	before := int64(0)
	for i, want := range []int{2, 2, 2, 0} {
		page, err := over(c).Audit(t.Context(), before, 100)
		if err != nil || len(page) != want {
			t.Fatalf("page %d has %d, %v, want %d", i, len(page), err, want)
		}
		for _, e := range page {
			before = e.ID
		}
	}
}

// An error on one shard names it, and does not keep the others from being done.
func TestEachGoesOn(t *testing.T) {
	c := newCluster(t)
	var done []string
	broken := errors.New("broken")
	err := c.Each(t.Context(), func(s *cluster.Database) error {
		done = append(done, s.Name)
		if s.Name == "b" {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || err.Error() != "shard b: broken" || !slices.Equal(done, []string{"a", "b", "c"}) {
		t.Errorf("%v were done: %v", done, err)
	}
}

// The lag has all partitions, in order, each with its shard.
func TestLagOfAllShards(t *testing.T) {
	lags, err := operations.ReadLag(t.Context(), newCluster(t), 10)
	if err != nil || len(lags.Partitions) != 6 {
		t.Fatalf("%+v, %v", lags, err)
	}
	for i, p := range lags.Partitions {
		if want := []string{"a", "b", "c"}[i/2]; p.Partition != i || p.Shard != want {
			t.Errorf("partition %d is on shard %s, want %s: %+v", i, p.Shard, want, p)
		}
	}
}

// A shard that is unavailable, and one that has lost a partition, are told beside the others.
func TestLagWithoutSomeShards(t *testing.T) {
	c := newCluster(t)
	all := c.Databases()
	if _, err := all[2].Pool.Exec(t.Context(), `SELECT badged.release_partition(4, 'a', 1)`); err != nil { // the map stays
		t.Fatal(err)
	}
	all[1].Pool.Close()
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	lags, err := over(c).Lag(t.Context())
	if err != nil || len(lags.Partitions) != 3 || len(lags.Away) != 2 || lags.Away[0].Shard != "b" || lags.Away[1].Shard != "c" || !slices.Equal(lags.Away[1].Partitions, []int{4}) {
		t.Errorf("%+v, %v", lags, err)
	}
	if _, err := c.Holder(4); !errors.Is(err, cluster.ErrLost) || !strings.Contains(err.Error(), "shard c does not hold partition 4") {
		t.Errorf("the holder of a lost partition: %v", err)
	}
	if _, err := c.Holder(5); err != nil {
		t.Error(err)
	}
	partition := 4
	if _, err := operations.VerifyTargets(c, operations.VerifyOptions{Partition: &partition}); !errors.Is(err, cluster.ErrLost) {
		t.Errorf("verifying a lost partition: %v", err)
	}
	if err := c.Each(t.Context(), func(*cluster.Database) error { return nil }); !errors.Is(err, cluster.ErrLost) || !errors.Is(err, cluster.ErrAway) {
		t.Errorf("each shard: %v", err)
	}
}

// What is done with all data says that it lacks a shard that the process does not know. What
// must be the same on all shards is not begun.
func TestWithoutAShardThatAProcessDoesNotKnow(t *testing.T) {
	urls := []string{pgtest.NewDB(t, schematest.Migrated(6)), pgtest.NewDB(t, schematest.Migrated(6)), pgtest.NewDB(t, schematest.Migrated(6))}
	c := clusterOf(t, urls[:2]...)
	all := clusterOf(t, urls...)
	var epoch string
	if err := all.Databases()[0].Pool.QueryRow(t.Context(), `SELECT badged.release_partition(0, 'c', 2)`).Scan(&epoch); err != nil {
		t.Fatal(err)
	}
	if _, err := all.Databases()[2].Pool.Exec(t.Context(), `SELECT badged.hold_partition(0, 2, $1)`, epoch); err != nil {
		t.Fatal(err)
	}
	if err := c.Reload(t.Context()); !errors.Is(err, cluster.ErrMissing) {
		t.Fatal(err)
	}
	user := userOf(t, c, 3)
	for what, do := range map[string]func() error{
		"erase": func() error { _, err := over(c).Erase(t.Context(), ops, user, nil); return err },
		"export": func() error {
			_, err := over(c).Export(t.Context(), user, nil, io.Discard, func(context.Context) error { return nil })
			return err
		},
		"the lag": func() error { _, err := operations.ReadLag(t.Context(), c, 10); return err },
		"a webhook": func() error {
			_, _, err := webhooksOf(c).Put(t.Context(), ops, "crm", operations.WebhookSettings{URL: "https://crm.example/", Events: []string{outbound.DriftFound}})
			return err
		},
	} {
		if err := do(); err == nil || strings.Count(err.Error(), "shard c, which has partition 0, is not in the settings of this process") != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	lags, err := over(c).Lag(t.Context())
	if err != nil || len(lags.Partitions) != 5 || len(lags.Away) != 1 || lags.Away[0].Shard != "c" {
		t.Errorf("%+v, %v", lags, err)
	}
}

// consent is an operations.WebhookCaller whose endpoints permit calls.
type consent struct{}

func (consent) Handshake(context.Context, string) (int, error) { return 0, nil }

func (consent) Test(context.Context, outbound.Webhook) webhook.Answer {
	return webhook.Answer{}
}

// Receivers verify calls of all shards with one secret, also of a shard on which making the
// webhook failed at first.
func TestShardsShareTheSecretsOfAWebhook(t *testing.T) {
	c := newCluster(t)
	webhooks := webhooksOf(c)
	settings := operations.WebhookSettings{URL: "https://crm.example/", Events: []string{outbound.DriftFound}}
	put := func() operations.Webhook {
		t.Helper()
		made, _, err := webhooks.Put(t.Context(), operations.OSUser(), "crm", settings)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	made := put()
	if err := outbound.NewTargets(c.Databases()[1].Pool, c).DeleteWebhook(t.Context(), "crm"); err != nil {
		t.Fatal(err)
	}
	put()
	for _, s := range c.Databases() {
		w, err := outbound.NewTargets(s.Pool, c).Webhook(t.Context(), "crm")
		if err != nil {
			t.Fatal(err)
		}
		err = operations.OpenWebhook(new(seal.Box), &w)
		if err != nil || len(w.Secrets) != 1 || "whsec_"+base64.StdEncoding.EncodeToString(w.Secrets[0]) != made.Secrets[0] {
			t.Errorf("%s signs with %q, %v; want %v", s.Label(), w.Secrets, err, made.Secrets)
		}
	}
}
