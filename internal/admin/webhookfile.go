package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/projector/outbound"
)

// DeclaredWebhook is a webhook as a file declares it.
type DeclaredWebhook struct {
	URL        string   `json:"url"`
	Secrets    []string `json:"secrets"`
	Events     []string `json:"events"`
	Categories []string `json:"categories"`
	Batch      *int     `json:"batch"`
}

func (d DeclaredWebhook) settings() WebhookSettings {
	return WebhookSettings{URL: d.URL, Secrets: d.Secrets, Events: d.Events, Categories: d.Categories, Batch: d.Batch}
}

// WebhookFile is a file that declares webhooks: a JSON object with an entry for each,
// by its name. The file is applied when the server starts and when it changes.
type WebhookFile struct {
	path     string
	webhooks *Webhooks
	log      *slog.Logger
	// asked is signalled when the file is to be read at once.
	asked chan struct{}
}

// NewWebhookFile reads the file. Its error joins all mistakes, each with the webhook
// and the field. Only the settings for private networks and reminders of cfg are needed
// until Run.
func NewWebhookFile(path string, cfg WebhooksConfig, log *slog.Logger) (*WebhookFile, error) {
	f := &WebhookFile{path: path, webhooks: &Webhooks{cfg}, log: log, asked: make(chan struct{}, 1)}
	content, err := os.ReadFile(path) //nolint:gosec // G304: the operator names it
	if err == nil {
		_, err = f.parse(content)
	}
	return f, err
}

// For returns the same file for a database, with the whole configuration, to be run.
func (f *WebhookFile) For(cfg WebhooksConfig, log *slog.Logger) *WebhookFile {
	return &WebhookFile{path: f.path, webhooks: &Webhooks{cfg}, log: log, asked: make(chan struct{}, 1)}
}

// parse returns the declared webhooks by name.
func (f *WebhookFile) parse(content []byte) (map[string]DeclaredWebhook, error) {
	line := func(offset int64) int { return 1 + bytes.Count(content[:min(int(offset), len(content))], []byte("\n")) }
	// Encoding/json would take the last of two fields with a name.
	if _, err := jsontext.NewDecoder(bytes.NewReader(content)).ReadValue(); err != nil {
		if wrong, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			return nil, fmt.Errorf("%s: line %d: %w", f.path, line(wrong.ByteOffset), err)
		}
		return nil, fmt.Errorf("%s: want a JSON object with an entry for each webhook: %w", f.path, err)
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(content, &entries); err != nil || entries == nil {
		return nil, fmt.Errorf("%s: want a JSON object with an entry for each webhook", f.path)
	}
	declared := map[string]DeclaredWebhook{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		var d DeclaredWebhook
		err := decodeDeclared(entries[name], &d)
		if err == nil {
			settings := d.settings()
			_, err = f.webhooks.check(name, &settings)
			if len(d.Secrets) == 0 {
				err = errors.Join(err, errors.New("secrets must have at least one: `echo whsec_$(openssl rand -base64 32)` makes it"))
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: webhook %q: %s", f.path, name, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		declared[name] = d
	}
	return declared, errors.Join(errs...)
}

// decodeDeclared decodes the entry of a webhook. Its errors name the field as the file has
// it. Names count in lower case only: encoding/json would let "URL" replace "url".
func decodeDeclared(text []byte, d *DeclaredWebhook) error {
	err := jsonv2.Unmarshal(text, d, jsonv2.RejectUnknownMembers(true))
	wrong, ok := errors.AsType[*jsonv2.SemanticError](err)
	switch {
	case !ok:
		return err
	case errors.Is(wrong, jsonv2.ErrUnknownName):
		return fmt.Errorf("unknown field %q", wrong.JSONPointer.LastToken())
	case wrong.JSONPointer == "":
		return errors.New("must be a JSON object")
	}
	return fmt.Errorf("%s is of the wrong type", strings.Join(slices.Collect(wrong.JSONPointer.Tokens()), "."))
}

// Reload lets Run read the file at once.
func (f *WebhookFile) Reload() {
	select {
	case f.asked <- struct{}{}:
	default:
	}
}

const (
	// fileInterval is how often the file is looked at. A change counts once two looks in
	// a row find it the same.
	fileInterval = time.Second
	// refusedInterval is how often what could not be applied is tried again.
	refusedInterval = 30 * time.Second
)

// Run applies the file until ctx is done.
func (f *WebhookFile) Run(ctx context.Context) error {
	tick := time.NewTicker(fileInterval)
	defer tick.Stop()
	var applied, pending []byte
	var again time.Time // of what could not be applied
	said := ""
	first := true
	for {
		content, err := os.ReadFile(f.path)
		settled := first || err == nil && bytes.Equal(content, pending)
		pending = content
		isDue := first || settled && !bytes.Equal(content, applied) || !again.IsZero() && time.Now().After(again)
		if err != nil || isDue {
			first = false
			if err == nil {
				applied, again = content, time.Time{}
				err = f.apply(ctx, content)
			}
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				again = time.Now().Add(refusedInterval)
				if err.Error() != said {
					f.log.ErrorContext(ctx, "cannot apply the declared webhooks, will try again; the webhooks stay as they are", "error", err)
				}
				said = err.Error()
			default:
				said = ""
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.asked:
			first = true
		case <-tick.C:
		}
	}
}

// byConfiguration is who changes webhooks in the audit trail.
var byConfiguration = Operator{Name: "--webhooks-config", Via: ViaFile}

// apply makes the declared webhooks those of the file. A webhook that cannot be applied
// keeps no other from it.
func (f *WebhookFile) apply(ctx context.Context, content []byte) error {
	declared, err := f.parse(content)
	if err != nil {
		return err
	}
	stored, err := f.webhooks.cfg.Targets.Webhooks(ctx)
	if err != nil {
		return err
	}
	present := map[string]outbound.Webhook{}
	var errs []error
	for _, w := range stored {
		present[w.Name] = w
		if _, ok := declared[w.Name]; w.Declared && !ok {
			if err := f.webhooks.remove(ctx, byConfiguration, w.Name); err != nil && !errors.Is(err, ErrNoWebhook) {
				errs = append(errs, fmt.Errorf("webhook %q: %w", w.Name, err))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		d := declared[name]
		if w, ok := present[name]; ok && f.isAs(w, d) {
			continue
		}
		if _, _, err := f.webhooks.put(ctx, byConfiguration, name, d.settings(), true); err != nil {
			errs = append(errs, fmt.Errorf("webhook %q: %w", name, err))
			continue
		}
		f.log.InfoContext(ctx, "a declared webhook was stored", "webhook", name)
	}
	return errors.Join(errs...)
}

// isAs reports whether a webhook is as declared.
func (f *WebhookFile) isAs(w outbound.Webhook, d DeclaredWebhook) bool {
	settings := d.settings()
	given, err := f.webhooks.check(w.Name, &settings)
	if err != nil || !w.Declared || !sameSettings(w, settings) {
		return false
	}
	secrets, err := OpenWebhook(f.webhooks.cfg.Box, w)
	return err == nil && slices.EqualFunc(secrets, given, bytes.Equal)
}
