package operations

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

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/notify/egress"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/notify/seal"
	"github.com/badged/badged/internal/notify/webhook"
)

// Limits of the settings of a webhook: the bytes of the URL, and the number of elements of each
// other setting.
const (
	maxWebhookURL        = 2048
	maxWebhookSecrets    = 5
	maxWebhookCategories = 100
	maxWebhookBatch      = 100
)

// WebhookSettings has the settings of a webhook.
type WebhookSettings struct {
	URL        string   `json:"url" maxLength:"2048" doc:"The URL of the endpoint. It must be https, and must not be in a private network, unless the server has --webhooks-allow-private."`
	Secrets    []string `json:"secrets,omitempty" maxItems:"5" doc:"The secrets that sign calls: whsec_ and 24 to 64 bytes in base64. All secrets sign each call, so that a receiver can change from one secret to the next. Without secrets, a new webhook gets a generated secret, and an existing webhook keeps its secrets."`
	Events     []string `json:"events" minItems:"1" doc:"The types of events to send: badge.changed, unread.reminder, deadletter.buried, drift.found. badge.changed includes room.changed."`
	Categories []string `json:"categories,omitempty" maxItems:"100" doc:"Send only changes of the numbers of these categories; by default of all categories."`
	Batch      *int     `json:"batch,omitempty" minimum:"1" maximum:"100" doc:"The maximum number of events in a call; 1 by default. If it is greater than 1, the body of each call is a list."`
	State      string   `json:"state,omitempty" enum:"active,paused,disabled" doc:"Whether badged calls the endpoint; active by default. Changes while the webhook is paused are sent when it is active again; changes while it is disabled are never sent."`
}

// Webhook is a webhook with its settings and the results of its calls.
type Webhook struct {
	Name          string    `json:"name" doc:"The name of the webhook."`
	URL           string    `json:"url" doc:"The URL of the endpoint."`
	Secrets       []string  `json:"secrets,omitempty" doc:"The generated secret, only in the answer that created it."`
	Events        []string  `json:"events" doc:"The types of events to send."`
	Categories    []string  `json:"categories,omitempty" doc:"The categories whose changes are sent; absent for all categories."`
	Batch         int       `json:"batch" minimum:"1" maximum:"100" doc:"The maximum number of events in a call."`
	Rate          int       `json:"rate,omitempty" minimum:"1" doc:"How many calls per minute each process may make, as the endpoint answered to OPTIONS; absent for no limit."`
	State         string    `json:"state" enum:"active,paused,disabled" doc:"Whether badged calls the endpoint. badged pauses a webhook after the last retry has failed, and disables it after an answer 410."`
	Declared      bool      `json:"declared,omitempty" doc:"True if the file of --webhooks-config declares the webhook: then the API can set only its state."`
	DueEvents     int64     `json:"due_events" minimum:"0" doc:"The number of events that were not sent yet, also while the webhook is paused: folded events of the log, and due events of its queue, of which at most 10000 are counted."`
	Step          int       `json:"step" minimum:"0" doc:"The number of the current wait on the ladder, that is, the growing waits after failed calls; 0 while calls succeed."`
	NextCallAt    time.Time `json:"next_call_at,omitzero" doc:"The time of the next call; absent while calls succeed."`
	FailingSince  time.Time `json:"failing_since,omitzero" doc:"The time of the first failure since the last success; absent while calls succeed."`
	LastSuccessAt time.Time `json:"last_success_at,omitzero" doc:"The time of the last call that succeeded, to within some seconds; absent if no call has succeeded."`
	LastFailureAt time.Time `json:"last_failure_at,omitzero" doc:"The time of the last call that failed; absent if no call has failed."`
	LastStatus    int       `json:"last_status,omitempty" doc:"The HTTP status of the last answer; absent if there was no answer."`
	LastError     string    `json:"last_error,omitempty" doc:"The error of the last call; absent if it succeeded."`
	CreatedAt     time.Time `json:"created_at" doc:"When the webhook was created."`
	UpdatedAt     time.Time `json:"updated_at" doc:"When the settings of the webhook were last set."`
}

// WebhookTest is the result of a test call.
type WebhookTest struct {
	Status          int     `json:"status,omitempty" doc:"The HTTP status of the answer; absent if there was no answer."`
	DurationSeconds float64 `json:"duration_seconds" minimum:"0" doc:"How long the call took."`
	Error           string  `json:"error,omitempty" doc:"The error of the call; absent if it succeeded."`
}

// WebhookCaller calls endpoints.
type WebhookCaller interface {
	// Handshake asks an endpoint for permission to call it. It returns how many calls per minute
	// the endpoint permits, 0 for no limit. Its errors are safe to show.
	Handshake(ctx context.Context, url string) (rate int, err error)
	// Test makes a test call.
	Test(ctx context.Context, w outbound.Webhook) webhook.Answer
}

// ErrNoWebhook is returned if no webhook has the name.
var ErrNoWebhook = errors.New("there is no such webhook")

// InvalidWebhookError lists the mistakes in the settings of a webhook.
type InvalidWebhookError struct{ Problems []string }

func (e *InvalidWebhookError) Error() string { return strings.Join(e.Problems, "; ") }

// EndpointError is returned if the endpoint of a webhook cannot be called or refuses calls.
type EndpointError struct{ Err error }

func (e *EndpointError) Error() string { return "url: " + e.Err.Error() }

// WebhookRules says which settings of webhooks are allowed.
type WebhookRules struct {
	// AllowPrivate permits endpoints in private networks.
	AllowPrivate bool
	// Reminders permits unread.reminder. It is set if the server has --remind-after.
	Reminders bool
}

// WebhooksConfig configures the operations on webhooks. Cluster, Box and Caller are required.
type WebhooksConfig struct {
	Cluster *cluster.Cluster
	// Box encrypts the secrets that the databases store.
	Box    *seal.Box
	Caller WebhookCaller
	WebhookRules
}

// Webhooks implements the operations on webhooks. Each database stores all webhooks and calls
// them for its own users. Webhooks records each change in the audit trail of the database,
// without secrets. It is safe for concurrent use.
type Webhooks struct {
	cfg WebhooksConfig
	// shards has one element for each database, in the order of the cluster.
	shards []*webhooksOf
}

// NewWebhooks returns the operations on the webhooks of a cluster.
func NewWebhooks(cfg WebhooksConfig) *Webhooks {
	w := &Webhooks{cfg: cfg}
	for _, s := range cfg.Cluster.Databases() {
		w.shards = append(w.shards, &webhooksOf{cfg: &w.cfg, db: s, targets: outbound.NewTargets(s.Pool, cfg.Cluster)})
	}
	return w
}

// all returns the webhooks of all databases. If a database is unavailable, all fails, since a
// change must reach every database.
func (s *Webhooks) all() ([]*webhooksOf, error) {
	_, err := s.cfg.Cluster.Present()
	return s.shards, err
}

// read returns the webhooks, sorted by name: all of them, or only the webhook `name` if name is not
// empty. It merges the results of a webhook's calls from all available databases: see Webhook.join.
func (s *Webhooks) read(ctx context.Context, name string) ([]Webhook, error) {
	if _, err := s.cfg.Cluster.Available(); err != nil {
		return nil, err
	}
	var all []Webhook
	first := true
	for _, of := range s.shards {
		if of.db.Err() != nil {
			continue
		}
		page, err := of.read(ctx, name)
		if err != nil {
			return nil, of.db.Wrap(err)
		}
		if first {
			all, first = page, false
			continue
		}
		for i := range all { // skip webhooks that are being created or deleted
			if j := slices.IndexFunc(page, func(w Webhook) bool { return w.Name == all[i].Name }); j >= 0 {
				all[i].join(page[j])
			}
		}
	}
	return all, nil
}

// List returns all webhooks, by name.
func (s *Webhooks) List(ctx context.Context) ([]Webhook, error) { return s.read(ctx, "") }

// Get returns a webhook, or [ErrNoWebhook].
func (s *Webhooks) Get(ctx context.Context, name string) (Webhook, error) {
	if err := checkName(name); err != nil {
		return Webhook{}, err
	}
	return firstWebhook(s.read(ctx, name))
}

func firstWebhook(found []Webhook, err error) (Webhook, error) {
	if err != nil {
		return Webhook{}, err
	}
	if len(found) == 0 {
		return Webhook{}, ErrNoWebhook
	}
	return found[0], nil
}

// Put creates a webhook or replaces its settings, in all databases. If a paused webhook becomes
// active, it is called about the changes that happened while it was paused. If the webhook will be
// active, and was not active with the same URL before, Put first asks the endpoint for permission.
// If a database is unavailable, Put changes nothing and fails. If Put fails in one of several
// databases, call it again.
func (s *Webhooks) Put(ctx context.Context, operator Operator, name string, settings WebhookSettings) (made Webhook, created bool, err error) {
	all, err := s.all()
	if err != nil {
		return made, false, err
	}
	for i, of := range all {
		given := settings
		if i > 0 && len(given.Secrets) == 0 {
			if given.Secrets, err = s.secretsFor(ctx, of, name, made.Secrets); err != nil {
				return Webhook{}, false, err
			}
		}
		one, isNew, err := of.put(ctx, operator, name, given, false)
		if err != nil {
			return Webhook{}, false, of.db.Wrap(err)
		}
		if i == 0 {
			made, created = one, isNew
		} else {
			made.join(one)
		}
	}
	return made, created, nil
}

// secretsFor returns the secrets to store in a database, so that the database signs with the same
// secrets as the first database. If Put has just generated a secret in the first database,
// secretsFor returns this secret. If this database does not have the webhook, for example after an
// interrupted Put, secretsFor returns the secrets of the first database. Otherwise it returns no
// secrets: this database has them already.
func (s *Webhooks) secretsFor(ctx context.Context, shard *webhooksOf, name string, generated []string) ([]string, error) {
	if len(generated) > 0 {
		return generated, nil
	}
	if _, err := shard.targets.Webhook(ctx, name); !errors.Is(err, outbound.ErrNotFound) {
		return nil, shard.db.Wrap(err)
	}
	w, err := s.shards[0].open(ctx, name)
	texts := make([]string, len(w.Secrets))
	for i, secret := range w.Secrets {
		texts[i] = formatSecret(secret)
	}
	return texts, s.shards[0].db.Wrap(err)
}

// Delete deletes a webhook and its pending calls in all databases. If a database is not
// available, Delete does nothing.
func (s *Webhooks) Delete(ctx context.Context, operator Operator, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	all, err := s.all()
	if err != nil {
		return err
	}
	found := false
	for _, of := range all {
		switch err := of.delete(ctx, operator, name); {
		case err == nil:
			found = true
		case !errors.Is(err, ErrNoWebhook):
			return of.db.Wrap(err)
		}
	}
	if !found {
		return ErrNoWebhook
	}
	return nil
}

// Test makes a test call of a webhook in any state, also paused or disabled.
func (s *Webhooks) Test(ctx context.Context, operator Operator, name string) (result WebhookTest, err error) {
	if err := checkName(name); err != nil {
		return result, err
	}
	databases, err := s.cfg.Cluster.Available()
	if err != nil {
		return result, err
	}
	shard := s.shards[slices.IndexFunc(s.shards, func(shard *webhooksOf) bool { return shard.db == databases[0] })]
	err = Audited(ctx, shard.db.Pool, operator, "webhooks.test", namedWebhook{name}, func(ctx context.Context) (any, error) {
		w, err := shard.open(ctx, name)
		if errors.Is(err, outbound.ErrNotFound) {
			return nil, ErrNoWebhook
		}
		if err != nil {
			return nil, err
		}
		answer := s.cfg.Caller.Test(ctx, w)
		result = WebhookTest{Status: answer.Status, DurationSeconds: answer.Duration.Seconds()}
		if answer.Err != nil {
			result.Error = answer.Err.Error()
		}
		return result, nil
	})
	return result, err
}

var webhookName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// checkName returns [ErrNoWebhook] if no webhook can have the name. Such a name may be any bytes: it
// must not reach a database or the audit trail.
func checkName(name string) error {
	if !webhookName.MatchString(name) {
		return ErrNoWebhook
	}
	return nil
}

// webhookEvents are the events that a webhook can subscribe to.
var webhookEvents = []string{outbound.BadgeChanged, outbound.UnreadReminder, outbound.DeadletterBuried, outbound.DriftFound}

// check checks settings and sets their defaults. It returns the decoded secrets, or an error
// that lists all mistakes.
func (r WebhookRules) check(name string, settings *WebhookSettings) (secrets [][]byte, err error) {
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !webhookName.MatchString(name) {
		wrong("the name must have 1 to 63 lower-case letters, digits, dashes and underscores, the first a letter or digit")
	}
	if len(settings.URL) > maxWebhookURL {
		wrong("url must have at most %d bytes", maxWebhookURL)
	} else if reason := egress.CheckURL(settings.URL, r.AllowPrivate); reason != "" {
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
		case event == outbound.UnreadReminder && !r.Reminders:
			wrong("events[%d]: the server has no --remind-after, so it sends no reminders", i)
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

// webhookContext returns the additional data with which the secrets of a webhook are encrypted. It
// contains the name of the webhook, so a secret that was copied to the row of another webhook
// cannot be decrypted.
func webhookContext(name string) string { return "webhook/" + name }

// OpenWebhook decrypts the secrets of a webhook in place.
func OpenWebhook(box *seal.Box, w *outbound.Webhook) (err error) {
	for i, sealed := range w.Secrets {
		if w.Secrets[i], err = box.Open(sealed, webhookContext(w.Name)); err != nil {
			return fmt.Errorf("open secret %d of webhook %q: %w", i, w.Name, err)
		}
	}
	return nil
}

// shownWebhook returns a webhook as operators see it, but without DueEvents and secrets.
func shownWebhook(w outbound.Webhook) Webhook {
	return Webhook{
		Name: w.Name, URL: w.URL, Events: w.Events, Categories: w.Categories, Batch: w.Batch, Rate: w.Rate, State: string(w.State), Declared: w.Declared, Step: w.Step,
		NextCallAt: w.Due.UTC(), FailingSince: w.FailingSince.UTC(), LastSuccessAt: w.LastSuccessAt.UTC(), LastFailureAt: w.LastFailureAt.UTC(),
		LastStatus: w.LastStatus, LastError: w.LastError, CreatedAt: w.CreatedAt.UTC(), UpdatedAt: w.UpdatedAt.UTC(),
	}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// join merges into w the results of the calls that another database made for the same webhook.
func (w *Webhook) join(other Webhook) {
	w.DueEvents += other.DueEvents
	if other.Step > w.Step {
		w.Step, w.NextCallAt = other.Step, other.NextCallAt
	}
	if w.FailingSince.IsZero() || !other.FailingSince.IsZero() && other.FailingSince.Before(w.FailingSince) {
		w.FailingSince = other.FailingSince
	}
	if other.LastFailureAt.After(w.LastFailureAt) {
		w.LastFailureAt, w.LastError, w.LastStatus = other.LastFailureAt, other.LastError, other.LastStatus
	}
	if other.LastSuccessAt.After(w.LastSuccessAt) {
		w.LastSuccessAt = other.LastSuccessAt
	}
	if w.Step == 0 && w.LastSuccessAt.After(w.LastFailureAt) {
		w.LastError = "" // the error is outdated: a later call from another database has succeeded
	}
	if other.State != "active" && w.State == "active" { // the other database has paused or disabled it
		w.State = other.State
	}
}

// secretPrefix is the prefix of every webhook secret. Programs that search for leaked secrets
// recognize it.
const secretPrefix = "whsec_"

// The smallest, greatest and generated size of a secret in bytes, as Standard Webhooks defines.
const (
	minSecret = 24
	maxSecret = 64
	newSecret = 32
)

// formatSecret returns a secret as the text with which receivers configure it.
func formatSecret(secret []byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString(secret)
}

func generateSecret() []byte {
	b := make([]byte, newSecret)
	_, _ = rand.Read(b) // never fails
	return b
}

// parseSecret is the inverse of formatSecret. reason says why the text is invalid, "" if it is
// valid.
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
