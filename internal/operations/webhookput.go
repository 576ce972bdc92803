package operations

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/notify/outbound"
)

// webhooksOf gives access to the webhooks that one database stores.
type webhooksOf struct {
	cfg     *WebhooksConfig
	db      *cluster.Database
	targets *outbound.Targets
}

// putWebhook has the arguments that the audit trail records for a put of a webhook.
type putWebhook struct {
	Webhook    string   `json:"webhook"`
	URL        string   `json:"url"` // without its query, which may contain a token
	Events     []string `json:"events"`
	Categories []string `json:"categories,omitempty"`
	Batch      int      `json:"batch"`
	State      string   `json:"state"`
	NewSecrets int      `json:"new_secrets"`
}

// put does the work of [Webhooks.Put] in one database. If declared is true, the settings come from
// the file of webhooks, and an existing webhook keeps its state, such as paused.
func (s *webhooksOf) put(ctx context.Context, operator Operator, name string, settings WebhookSettings, declared bool) (w Webhook, created bool, err error) {
	given, err := s.cfg.check(name, &settings)
	if err != nil {
		return Webhook{}, false, err
	}
	old, err := s.replaced(ctx, name, settings, declared)
	if err != nil {
		return Webhook{}, false, err
	}
	if declared && old.Generation != 0 {
		settings.State = string(old.State)
	}
	shown, _, _ := strings.Cut(settings.URL, "?")
	arguments := putWebhook{name, shown, settings.Events, settings.Categories, *settings.Batch, settings.State, len(given)}
	err = Audited(ctx, s.db.Pool, operator, "webhooks.put", arguments, func(ctx context.Context) (any, error) {
		var generated []byte
		rate, asked := 0, false // another request may store the webhook during the call of the endpoint; then the loop repeats without calling it again
		for {
			put := outbound.Webhook{
				Declared: declared || old.Declared,
				Name:     name, URL: settings.URL, Events: settings.Events, Categories: settings.Categories,
				Batch: *settings.Batch, State: outbound.State(settings.State), Rate: old.Rate, Secrets: old.Secrets,
			}
			created, generated = old.Generation == 0, nil
			secrets := given
			if len(given) == 0 && created {
				generated = generateSecret()
				secrets = [][]byte{generated}
			}
			if len(secrets) > 0 {
				put.Secrets = nil
			}
			for _, secret := range secrets {
				put.Secrets = append(put.Secrets, s.cfg.Box.Seal(secret, webhookContext(name)))
			}
			switch {
			case put.State == outbound.Active && (created || old.URL != put.URL || old.State != outbound.Active):
				if !asked {
					if rate, err = s.cfg.Caller.Handshake(ctx, put.URL); err != nil {
						return nil, &EndpointError{err}
					}
				}
				asked, put.Rate = true, rate
			case old.URL != put.URL:
				put.Rate = 0
			}
			err := s.targets.PutWebhook(ctx, put, old.Generation)
			if err == nil {
				break
			}
			if !errors.Is(err, outbound.ErrChanged) {
				return nil, err
			}
			if old, err = s.replaced(ctx, name, settings, declared); err != nil {
				return nil, err
			}
		}
		if w, err = firstWebhook(s.read(ctx, name)); generated != nil {
			w.Secrets = []string{formatSecret(generated)}
		}
		return nil, err
	})
	return w, created, err
}

// replaced returns the webhook that settings will replace, or a webhook with generation 0 if there
// is none. If a file declares the webhook and the settings do not come from the file, the settings
// may change only the state: replaced fails if they contain secrets or another change.
func (s *webhooksOf) replaced(ctx context.Context, name string, settings WebhookSettings, declared bool) (outbound.Webhook, error) {
	old, err := s.targets.Webhook(ctx, name)
	switch {
	case errors.Is(err, outbound.ErrNotFound):
		return outbound.Webhook{}, nil
	case err != nil:
		return outbound.Webhook{}, err
	case !declared && old.Declared && (len(settings.Secrets) > 0 || !sameSettings(old, settings)):
		return outbound.Webhook{}, isDeclared()
	}
	return old, nil
}

// open returns a webhook with decrypted secrets.
func (s *webhooksOf) open(ctx context.Context, name string) (outbound.Webhook, error) {
	w, err := s.targets.Webhook(ctx, name)
	if err == nil {
		err = OpenWebhook(s.cfg.Box, &w)
	}
	return w, err
}

// sameSettings reports whether a webhook has the given settings, ignoring secrets and state.
func sameSettings(w outbound.Webhook, settings WebhookSettings) bool {
	return w.URL == settings.URL && slices.Equal(w.Events, settings.Events) &&
		slices.Equal(w.Categories, settings.Categories) && w.Batch == *settings.Batch
}

// isDeclared returns the error for changes by operators to a webhook that a file declares.
func isDeclared() error {
	return &InvalidWebhookError{[]string{"the webhook is declared in the file of --webhooks-config: change it there; only its state can be set here"}}
}

// read returns the webhooks as operators see them: all webhooks in the order of their names, or
// only the webhook `name` if name is not empty.
func (s *webhooksOf) read(ctx context.Context, name string) ([]Webhook, error) {
	stored, err := s.targets.Webhooks(ctx)
	if err != nil {
		return nil, err
	}
	var all []Webhook
	var names []string
	for _, w := range stored {
		if name == "" || w.Name == name {
			all, names = append(all, shownWebhook(w)), append(names, w.Name)
		}
	}
	due, err := s.targets.DueEvents(ctx, names...)
	for i := range all {
		all[i].DueEvents = due[all[i].Name]
	}
	return all, err
}

func (s *webhooksOf) delete(ctx context.Context, operator Operator, name string) error {
	old, err := s.targets.Webhook(ctx, name)
	switch {
	case err == nil && old.Declared:
		return isDeclared()
	case err != nil && !errors.Is(err, outbound.ErrNotFound): // if there is no such webhook, remove records the attempt in the audit trail
		return err
	}
	return s.remove(ctx, operator, name)
}

func (s *webhooksOf) remove(ctx context.Context, operator Operator, name string) error {
	return Audited(ctx, s.db.Pool, operator, "webhooks.delete", namedWebhook{name}, func(ctx context.Context) (any, error) {
		err := s.targets.DeleteWebhook(ctx, name)
		if errors.Is(err, outbound.ErrNotFound) {
			err = ErrNoWebhook
		}
		return nil, err
	})
}

// namedWebhook has the arguments that the audit trail records for other actions on webhooks.
type namedWebhook struct {
	Webhook string `json:"webhook"`
}
