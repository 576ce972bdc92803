package operators

import (
	"context"
	"errors"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/shards"
)

// Webhooks implements the operations on the webhooks of all shards: each shard has all
// webhooks, and calls them for its users. It is safe for concurrent use.
type Webhooks struct {
	cluster *shards.Cluster
	each    map[*shards.Shard]*admin.Webhooks
}

// NewWebhooks returns the operations on webhooks, each has those of the shards in their
// order.
func NewWebhooks(c *shards.Cluster, each []*admin.Webhooks) *Webhooks {
	w := &Webhooks{c, map[*shards.Shard]*admin.Webhooks{}}
	for i, s := range c.Shards() {
		w.each[s] = each[i]
	}
	return w
}

// all fails if a shard is away: its webhooks must not differ from those of the others.
func (w *Webhooks) all() ([]*shards.Shard, error) {
	if _, gone := reachable(w.cluster); gone != nil {
		return nil, gone
	}
	return w.cluster.Shards(), nil
}

// some returns the shards that can be reached, at least one.
func (w *Webhooks) some() ([]*shards.Shard, error) {
	some, gone := reachable(w.cluster)
	if len(some) == 0 {
		return nil, gone
	}
	return some, nil
}

// List returns all webhooks, by name, with how their calls went on all shards together.
func (w *Webhooks) List(ctx context.Context) ([]admin.Webhook, error) {
	some, err := w.some()
	if err != nil {
		return nil, err
	}
	var all []admin.Webhook
	for i, s := range some {
		one, err := w.each[s].List(ctx)
		if err != nil {
			return nil, inShard(s, err)
		}
		if i == 0 {
			all = one
			continue
		}
		for j := range all {
			for _, other := range one {
				if other.Name == all[j].Name {
					all[j].Join(other)
				}
			}
		}
	}
	return all, nil
}

// Get returns a webhook, with how its calls went on all shards together.
func (w *Webhooks) Get(ctx context.Context, name string) (admin.Webhook, error) {
	some, err := w.some()
	if err != nil {
		return admin.Webhook{}, err
	}
	var all admin.Webhook
	for i, s := range some {
		one, err := w.each[s].Get(ctx, name)
		if i > 0 && errors.Is(err, admin.ErrNoWebhook) {
			continue // it is being made or deleted
		}
		if err != nil {
			return admin.Webhook{}, inShard(s, err)
		}
		if i == 0 {
			all = one
		} else {
			all.Join(one)
		}
	}
	return all, nil
}

// Put makes a webhook on all shards, or replaces its settings; see [admin.Webhooks.Put].
// It does nothing if a shard is away. If it fails on one of the others, repeat it.
func (w *Webhooks) Put(ctx context.Context, by admin.Operator, name string, settings admin.WebhookSettings) (made admin.Webhook, created bool, err error) {
	all, err := w.all()
	if err != nil {
		return made, false, err
	}
	for i, s := range all {
		given := settings
		if i > 0 && len(given.Secrets) == 0 {
			if given.Secrets, err = w.secretsFor(ctx, s, name, made.Secrets); err != nil {
				return admin.Webhook{}, false, err
			}
		}
		one, isNew, err := w.each[s].Put(ctx, by, name, given)
		if err != nil {
			return admin.Webhook{}, false, inShard(s, err)
		}
		if i == 0 {
			made, created = one, isNew
		} else {
			made.Join(one)
		}
	}
	return made, created, nil
}

// secretsFor returns the secrets that a shard needs to sign like the first: those that the
// first has just generated, or those that it has if the webhook is new to this one, as
// after a put that failed in between. It returns none if the shard has its own.
func (w *Webhooks) secretsFor(ctx context.Context, s *shards.Shard, name string, generated []string) ([]string, error) {
	if len(generated) > 0 {
		return generated, nil
	}
	if _, err := w.each[s].Get(ctx, name); !errors.Is(err, admin.ErrNoWebhook) {
		return nil, inShard(s, err)
	}
	first := w.cluster.Shards()[0]
	secrets, err := w.each[first].Secrets(ctx, name)
	return secrets, inShard(first, err)
}

// Delete deletes a webhook on all shards. It does nothing if a shard is away.
func (w *Webhooks) Delete(ctx context.Context, by admin.Operator, name string) error {
	all, err := w.all()
	if err != nil {
		return err
	}
	found := false
	for _, s := range all {
		switch err := w.each[s].Delete(ctx, by, name); {
		case err == nil:
			found = true
		case !errors.Is(err, admin.ErrNoWebhook):
			return inShard(s, err)
		}
	}
	if !found {
		return admin.ErrNoWebhook
	}
	return nil
}

// Test makes one test call.
func (w *Webhooks) Test(ctx context.Context, by admin.Operator, name string) (admin.WebhookTest, error) {
	some, err := w.some()
	if err != nil {
		return admin.WebhookTest{}, err
	}
	return w.each[some[0]].Test(ctx, by, name)
}
