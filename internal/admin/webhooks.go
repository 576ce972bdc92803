package admin

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/egress"
	"github.com/badged/badged/internal/seal"
	"github.com/badged/badged/projector/outbound"
)

// Limits of the settings of a webhook.
const (
	maxWebhookURL        = 2048
	maxWebhookSecrets    = 5
	maxWebhookCategories = 100
	maxWebhookBatch      = 100
)

// WebhookSettings are what operators say of a webhook.
type WebhookSettings struct {
	URL        string   `json:"url" maxLength:"2048" doc:"Where to call. It must be https, and must not be in a private network unless the server has --webhooks-allow-private."`
	Secrets    []string `json:"secrets,omitempty" maxItems:"5" doc:"What signs calls: whsec_ and 24 to 64 bytes in base64. All of them sign, so that a receiver can change from one to the next. Without any, the former ones stay, and a new webhook gets one."`
	Events     []string `json:"events" minItems:"1" doc:"What is told: badge.changed, unread.reminder, deadletter.buried, drift.found. badge.changed includes room.changed."`
	Categories []string `json:"categories,omitempty" maxItems:"100" doc:"Tell only changes of the numbers of these categories. All by default."`
	Batch      *int     `json:"batch,omitempty" minimum:"1" maximum:"100" doc:"The most events of a call; 1 by default. With more, the body of each call is a list."`
	State      string   `json:"state,omitempty" enum:"active,paused,disabled" doc:"Whether it is called; active by default. What changes while it is paused is told when it is active again; what changes while it is disabled is not."`
}

// Webhook is a webhook with its settings and how its calls went.
type Webhook struct {
	Name          string     `json:"name" doc:"The name."`
	URL           string     `json:"url" doc:"Where it is called."`
	Secrets       []string   `json:"secrets,omitempty" doc:"The secret, in the answer that made it. It is not shown again."`
	Events        []string   `json:"events" doc:"What is told."`
	Categories    []string   `json:"categories,omitempty" doc:"The categories whose numbers are told; absent for all."`
	Batch         int        `json:"batch" minimum:"1" maximum:"100" doc:"The most events of a call."`
	Rate          int        `json:"rate,omitempty" minimum:"1" doc:"The most calls a minute that the endpoint permitted in the handshake, of each process; absent for no limit."`
	State         string     `json:"state" enum:"active,paused,disabled" doc:"Whether it is called. After the last step of the ladder of retries it is paused, after an answer of 410 disabled."`
	Declared      bool       `json:"declared,omitempty" doc:"The configuration (--webhooks-config) declares it: only its state can be set here."`
	DueEvents     int64      `json:"due_events" minimum:"0" doc:"Events of the log that it was not told of, and others that are due, also while it is paused. Of the latter at most 10000 are counted."`
	Step          int        `json:"step" minimum:"0" doc:"The step on the ladder of retries; 0 while calls succeed."`
	NextCallAt    *time.Time `json:"next_call_at,omitempty" doc:"When it is called again; absent while calls succeed."`
	FailingSince  *time.Time `json:"failing_since,omitempty" doc:"The first failure since the last success; absent while calls succeed."`
	LastSuccessAt *time.Time `json:"last_success_at,omitempty" doc:"The last call that succeeded, to some seconds."`
	LastFailureAt *time.Time `json:"last_failure_at,omitempty" doc:"The last call that failed."`
	LastStatus    int        `json:"last_status,omitempty" doc:"The status of the last answer; absent if there was none."`
	LastError     string     `json:"last_error,omitempty" doc:"Why the last call failed; absent if it succeeded."`
	CreatedAt     time.Time  `json:"created_at" doc:"When it was made."`
	UpdatedAt     time.Time  `json:"updated_at" doc:"When its settings were last set."`
}

// WebhookTest is the result of a test call.
type WebhookTest struct {
	Status          int     `json:"status,omitempty" doc:"The status of the answer; absent if there was none."`
	DurationSeconds float64 `json:"duration_seconds" minimum:"0" doc:"How long the call took."`
	Error           string  `json:"error,omitempty" doc:"Why it failed; absent if it succeeded."`
}

// WebhookCaller calls endpoints.
type WebhookCaller interface {
	// Handshake asks an endpoint for permission and returns how many calls a
	// minute it permits; 0 is no limit. Its errors are safe to show.
	Handshake(ctx context.Context, url string) (rate int, err error)
	// Test makes a test call.
	Test(ctx context.Context, name, url string, secrets [][]byte, batch int) WebhookTest
}

// Errors of operations on webhooks.
var ErrNoWebhook = errors.New("there is no such webhook")

// InvalidWebhookError lists what is wrong with settings.
type InvalidWebhookError struct{ Problems []string }

func (e *InvalidWebhookError) Error() string { return strings.Join(e.Problems, "; ") }

// EndpointError is returned if an endpoint cannot be called or refuses calls.
type EndpointError struct{ Err error }

func (e *EndpointError) Error() string { return "url: " + e.Err.Error() }

// WebhooksConfig configures the operations on webhooks. All pointers and the
// caller are required.
type WebhooksConfig struct {
	Pool    *pgxpool.Pool
	Targets *outbound.Targets
	// Box seals secrets.
	Box    *seal.Box
	Caller WebhookCaller
	// AllowPrivate permits endpoints in private networks.
	AllowPrivate bool
	// Reminders permits unread.reminder: the server knows after how long to remind.
	Reminders bool
}

// Webhooks implements the operations on webhooks. Changes are recorded in the
// audit trail, without secrets. It is safe for concurrent use.
type Webhooks struct{ cfg WebhooksConfig }

// NewWebhooks returns the operations on the webhooks of a database.
func NewWebhooks(cfg WebhooksConfig) *Webhooks { return &Webhooks{cfg} }

var webhookName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// webhookEvents are what operators can ask for.
var webhookEvents = []string{outbound.BadgeChanged, outbound.UnreadReminder, outbound.DeadletterBuried, outbound.DriftFound}

// check sets defaults and returns the secrets, or everything that is wrong.
func (s *Webhooks) check(name string, settings *WebhookSettings) (secrets [][]byte, err error) {
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !webhookName.MatchString(name) {
		wrong("the name must have 1 to 63 lower-case letters, digits, dashes and underscores, the first a letter or digit")
	}
	if len(settings.URL) > maxWebhookURL {
		wrong("url must have at most %d bytes", maxWebhookURL)
	} else if reason := egress.CheckURL(settings.URL, s.cfg.AllowPrivate); reason != "" {
		wrong("url %s", reason)
	}
	if len(settings.Secrets) > maxWebhookSecrets {
		wrong("secrets must be at most %d", maxWebhookSecrets)
	}
	for i, text := range settings.Secrets {
		secret, reason := parseSecret(text)
		if reason != "" {
			wrong("secrets[%d] %s", i, reason)
		}
		secrets = append(secrets, secret)
	}
	if len(settings.Events) == 0 {
		wrong("events must name at least one of %s", strings.Join(webhookEvents, ", "))
	}
	for i, event := range settings.Events {
		switch {
		case !slices.Contains(webhookEvents, event):
			wrong("events[%d] must be one of %s", i, strings.Join(webhookEvents, ", "))
		case slices.Contains(settings.Events[:i], event):
			wrong("events[%d] is named twice", i)
		case event == outbound.UnreadReminder && !s.cfg.Reminders:
			wrong("events[%d]: the server has no --remind-after, so it reminds of nothing", i)
		}
	}
	if len(settings.Categories) > maxWebhookCategories {
		wrong("categories must be at most %d", maxWebhookCategories)
	}
	for i, category := range settings.Categories {
		if reason := events.CheckCategory(category); reason != "" {
			wrong("categories[%d] %s", i, reason)
		} else if slices.Contains(settings.Categories[:i], category) {
			wrong("categories[%d] is named twice", i)
		}
	}
	if settings.Categories != nil && len(settings.Categories) == 0 {
		wrong("categories must name at least one: leave it out for all")
	}
	if settings.Batch == nil {
		settings.Batch = new(1)
	}
	if n := *settings.Batch; n < 1 || n > maxWebhookBatch {
		wrong("batch must be from 1 to %d, is %d", maxWebhookBatch, n)
	}
	switch outbound.State(settings.State) {
	case "":
		settings.State = string(outbound.Active)
	case outbound.Active, outbound.Paused, outbound.Disabled:
	default:
		wrong("state must be active, paused or disabled")
	}
	if len(problems) > 0 {
		return nil, &InvalidWebhookError{problems}
	}
	return secrets, nil
}

// webhookContext says to which row a sealed secret belongs.
func webhookContext(name string) string { return "webhook/" + name }

// OpenWebhook opens the secrets of a webhook.
func OpenWebhook(box *seal.Box, w outbound.Webhook) ([][]byte, error) {
	secrets := make([][]byte, len(w.Secrets))
	for i, sealed := range w.Secrets {
		var err error
		if secrets[i], err = box.Open(sealed, webhookContext(w.Name)); err != nil {
			return nil, fmt.Errorf("open secret %d of webhook %q: %w", i, w.Name, err)
		}
	}
	return secrets, nil
}

// putWebhook is the record of a put in the audit trail.
type putWebhook struct {
	Webhook    string   `json:"webhook"`
	URL        string   `json:"url"` // without its query, which may hold a token
	Events     []string `json:"events"`
	Categories []string `json:"categories,omitempty"`
	Batch      int      `json:"batch"`
	State      string   `json:"state"`
	NewSecrets int      `json:"new_secrets"`
}

// Put makes a webhook or replaces its settings. A webhook that becomes active
// gets what changed while it was paused. An endpoint that was not called before
// is asked for permission.
func (s *Webhooks) Put(ctx context.Context, by Operator, name string, settings WebhookSettings) (w Webhook, created bool, err error) {
	return s.put(ctx, by, name, settings, false)
}

// put is Put, also of a webhook that a file declares, whose state stays.
func (s *Webhooks) put(ctx context.Context, by Operator, name string, settings WebhookSettings, declared bool) (w Webhook, created bool, err error) {
	given, err := s.check(name, &settings)
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
	err = Audited(ctx, s.cfg.Pool, by, "webhooks.put", arguments, func(ctx context.Context) (any, error) {
		var generated []byte
		rate, asked := 0, false // the endpoint, which may take seconds: meanwhile others can put the webhook
		for {
			put := outbound.WebhookSettings{
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
			err := s.cfg.Targets.PutWebhook(ctx, put, old.Generation)
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
		if w, err = s.Get(ctx, name); generated != nil {
			w.Secrets = []string{formatSecret(generated)}
		}
		return nil, err
	})
	return w, created, err
}

// replaced returns the webhook that settings are to replace, whose generation is 0 if
// there is none. It fails if they may not: a file owns the settings of what it declares.
func (s *Webhooks) replaced(ctx context.Context, name string, settings WebhookSettings, declared bool) (outbound.Webhook, error) {
	old, err := s.cfg.Targets.Webhook(ctx, name)
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

// Secrets returns the secrets of a webhook, to sign its calls on another shard.
func (s *Webhooks) Secrets(ctx context.Context, name string) ([]string, error) {
	w, err := s.cfg.Targets.Webhook(ctx, name)
	if err != nil {
		return nil, err
	}
	secrets, err := OpenWebhook(s.cfg.Box, w)
	if err != nil {
		return nil, err
	}
	all := make([]string, len(secrets))
	for i, secret := range secrets {
		all[i] = formatSecret(secret)
	}
	return all, nil
}

// sameSettings reports whether settings are those of a webhook, but for its secrets and
// state.
func sameSettings(w outbound.Webhook, settings WebhookSettings) bool {
	return w.URL == settings.URL && slices.Equal(w.Events, settings.Events) &&
		slices.Equal(w.Categories, settings.Categories) && w.Batch == *settings.Batch
}

// isDeclared returns the error of operators who change what a file declares.
func isDeclared() error {
	return &InvalidWebhookError{[]string{"the webhook is declared in the file of --webhooks-config: change it there; only its state can be set here"}}
}

// Get returns a webhook.
func (s *Webhooks) Get(ctx context.Context, name string) (Webhook, error) {
	w, err := s.cfg.Targets.Webhook(ctx, name)
	if errors.Is(err, outbound.ErrNotFound) {
		return Webhook{}, ErrNoWebhook
	}
	if err != nil {
		return Webhook{}, err
	}
	all, err := s.shown(ctx, w)
	if err != nil {
		return Webhook{}, err
	}
	return all[0], nil
}

// List returns all webhooks, by name.
func (s *Webhooks) List(ctx context.Context) ([]Webhook, error) {
	stored, err := s.cfg.Targets.Webhooks(ctx)
	if err != nil {
		return nil, err
	}
	return s.shown(ctx, stored...)
}

// shown returns what operators see of webhooks.
func (s *Webhooks) shown(ctx context.Context, stored ...outbound.Webhook) ([]Webhook, error) {
	names := make([]string, len(stored))
	for i := range stored {
		names[i] = stored[i].Name
	}
	due, err := s.cfg.Targets.DueEvents(ctx, names...)
	if err != nil {
		return nil, err
	}
	all := make([]Webhook, len(stored))
	for i, w := range stored {
		all[i] = shownWebhook(w)
		all[i].DueEvents = due[w.Name]
	}
	return all, nil
}

// Delete deletes a webhook with all that it was not told.
func (s *Webhooks) Delete(ctx context.Context, by Operator, name string) error {
	old, err := s.cfg.Targets.Webhook(ctx, name)
	switch {
	case err == nil && old.Declared:
		return isDeclared()
	case err != nil && !errors.Is(err, outbound.ErrNotFound): // whose deletion is audited
		return err
	}
	return s.remove(ctx, by, name)
}

func (s *Webhooks) remove(ctx context.Context, by Operator, name string) error {
	return Audited(ctx, s.cfg.Pool, by, "webhooks.delete", namedWebhook{name}, func(ctx context.Context) (any, error) {
		err := s.cfg.Targets.DeleteWebhook(ctx, name)
		if errors.Is(err, outbound.ErrNotFound) {
			err = ErrNoWebhook
		}
		return nil, err
	})
}

// namedWebhook is the record of other actions in the audit trail.
type namedWebhook struct {
	Webhook string `json:"webhook"`
}

// Test makes a test call, in any state of the webhook.
func (s *Webhooks) Test(ctx context.Context, by Operator, name string) (result WebhookTest, err error) {
	err = Audited(ctx, s.cfg.Pool, by, "webhooks.test", namedWebhook{name}, func(ctx context.Context) (any, error) {
		w, err := s.cfg.Targets.Webhook(ctx, name)
		if errors.Is(err, outbound.ErrNotFound) {
			return nil, ErrNoWebhook
		}
		if err != nil {
			return nil, err
		}
		secrets, err := OpenWebhook(s.cfg.Box, w)
		if err != nil {
			return nil, err
		}
		result = s.cfg.Caller.Test(ctx, w.Name, w.URL, secrets, w.Batch)
		return result, nil
	})
	return result, err
}

// shownWebhook returns what operators see of a webhook, without what is due.
func shownWebhook(w outbound.Webhook) Webhook {
	shown := Webhook{
		Name: w.Name, URL: w.URL, Events: w.Events, Categories: w.Categories, Batch: w.Batch, Rate: w.Rate, State: string(w.State), Declared: w.Declared, Step: w.Step,
		NextCallAt: utc(w.Due), FailingSince: utc(w.FailingSince), LastSuccessAt: utc(w.LastSuccessAt), LastFailureAt: utc(w.LastFailureAt),
		CreatedAt: w.CreatedAt.UTC(), UpdatedAt: w.UpdatedAt.UTC(),
	}
	if w.LastStatus != nil {
		shown.LastStatus = *w.LastStatus
	}
	if w.LastError != nil {
		shown.LastError = *w.LastError
	}
	return shown
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// Join adds how the calls of the same webhook went on another shard.
func (w *Webhook) Join(other Webhook) {
	later := func(a, b *time.Time) *time.Time {
		if a == nil || b != nil && b.After(*a) {
			return b
		}
		return a
	}
	w.DueEvents += other.DueEvents
	if other.Step > w.Step {
		w.Step, w.NextCallAt = other.Step, other.NextCallAt
	}
	if w.FailingSince == nil || other.FailingSince != nil && other.FailingSince.Before(*w.FailingSince) {
		w.FailingSince = other.FailingSince
	}
	if other.LastFailureAt != nil && (w.LastFailureAt == nil || other.LastFailureAt.After(*w.LastFailureAt)) {
		w.LastFailureAt, w.LastError, w.LastStatus = other.LastFailureAt, other.LastError, other.LastStatus
	}
	w.LastSuccessAt = later(w.LastSuccessAt, other.LastSuccessAt)
	if w.Step == 0 && w.LastSuccessAt != nil && (w.LastFailureAt == nil || w.LastSuccessAt.After(*w.LastFailureAt)) {
		w.LastError = "" // of a shard that has nothing to tell since
	}
	if other.State != "active" && w.State == "active" { // one shard has paused it
		w.State = other.State
	}
}

// secretPrefix begins each secret of a webhook, so that scanners find leaked
// ones.
const secretPrefix = "whsec_"

// The sizes of secrets in bytes, by Standard Webhooks.
const (
	minSecret = 24
	maxSecret = 64
	newSecret = 32
)

// formatSecret returns a secret as receivers configure it.
func formatSecret(secret []byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString(secret)
}

// generateSecret returns a new secret.
func generateSecret() []byte {
	b := make([]byte, newSecret)
	_, _ = rand.Read(b) // never fails
	return b
}

// parseSecret is the reverse of formatSecret. It returns what is wrong with the
// text, or "".
func parseSecret(text string) (secret []byte, reason string) {
	rest, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return nil, "must begin with " + secretPrefix
	}
	secret, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return nil, "must be base64 after " + secretPrefix
	}
	if len(secret) < minSecret || len(secret) > maxSecret {
		return nil, fmt.Sprintf("must have %d to %d bytes, has %d", minSecret, maxSecret, len(secret))
	}
	return secret, ""
}
