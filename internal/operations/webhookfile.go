package operations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/notify/outbound"
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

// WebhookFile is a file that declares webhooks: a JSON object in which each key is the name of a
// webhook. The file is applied when the server starts and whenever it changes.
type WebhookFile struct {
	files wait.Files
	rules WebhookRules
	log   *slog.Logger
	// logged is the last error that was logged, so that a repeated error is logged only once.
	logged string
	// requested signals that Run must read the file immediately.
	requested chan struct{}
}

// NewWebhookFile reads and checks the file. Its error lists all mistakes, each with its webhook and
// field.
func NewWebhookFile(path string, rules WebhookRules, log *slog.Logger) (*WebhookFile, error) {
	f := &WebhookFile{rules: rules, log: log, requested: make(chan struct{}, 1)}
	f.files = wait.Files{Paths: []string{path}, Interval: fileInterval, Retry: refusedInterval}
	_, err := f.parse(f.files.Read())
	return f, err
}

// parse returns the declared webhooks by name. contents and err are the result of reading the
// file.
func (f *WebhookFile) parse(contents [][]byte, err error) (map[string]DeclaredWebhook, error) {
	if err != nil {
		return nil, err
	}
	content, path := contents[0], f.files.Paths[0]
	line := func(offset int64) int { return 1 + bytes.Count(content[:min(int(offset), len(content))], []byte("\n")) }
	// Reject fields that are given twice: encoding/json would use the second value.
	if _, err := jsontext.NewDecoder(bytes.NewReader(content)).ReadValue(); err != nil {
		if wrong, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			return nil, fmt.Errorf("%s: line %d: %w", path, line(wrong.ByteOffset), err)
		}
		return nil, fmt.Errorf("%s: want a JSON object with an entry for each webhook: %w", path, err)
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(content, &entries); err != nil || entries == nil {
		return nil, fmt.Errorf("%s: want a JSON object with an entry for each webhook", path)
	}
	declared := map[string]DeclaredWebhook{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		var d DeclaredWebhook
		err := decodeDeclared(entries[name], &d)
		if err == nil {
			settings := d.settings()
			_, err = f.rules.check(name, &settings)
			if len(d.Secrets) == 0 {
				err = errors.Join(err, errors.New("secrets must have at least one: `echo whsec_$(openssl rand -base64 32)` makes it"))
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: webhook %q: %s", path, name, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		declared[name] = d
	}
	return declared, errors.Join(errs...)
}

// decodeDeclared decodes the entry of a webhook. Its errors name the fields as they are in the
// file. It compares the names of fields case-sensitively, unlike encoding/json, which would accept
// "URL" for "url".
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

// Reload makes Run read the file immediately.
func (f *WebhookFile) Reload() {
	wait.Wake(f.requested)
}

const (
	// fileInterval is how often Run checks the file for changes.
	fileInterval = time.Second
	// refusedInterval is the pause after which Run tries again to apply a file that it could not
	// apply.
	refusedInterval = 30 * time.Second
)

// Run applies the file to all databases: immediately, after each change of the file, and after each
// call of [WebhookFile.Reload]. It runs until ctx is done.
func (f *WebhookFile) Run(ctx context.Context, webhooks *Webhooks) error {
	f.files.Use = func(ctx context.Context, contents [][]byte, err error) error {
		return f.use(ctx, webhooks, contents, err)
	}
	f.files.Reload(ctx)
	for {
		asked, err := wait.Signal(ctx, f.requested, fileInterval)
		switch {
		case err != nil:
			return nil
		case asked:
			f.files.Reload(ctx)
		default:
			f.files.Look(ctx)
		}
	}
}

// use applies the contents of the file. If this fails, it logs the error, unless the error is the
// same as the last logged error.
func (f *WebhookFile) use(ctx context.Context, webhooks *Webhooks, contents [][]byte, err error) error {
	if err = f.apply(ctx, webhooks, contents, err); ctx.Err() != nil {
		return nil
	}
	mistake := ""
	if err != nil {
		mistake = err.Error()
	}
	if mistake != "" && mistake != f.logged {
		f.log.ErrorContext(ctx, "cannot apply the declared webhooks, will try again; the webhooks stay as they are", "error", err)
	}
	f.logged = mistake
	return err
}

// byConfiguration is the operator that the audit trail names for changes made by the file.
var byConfiguration = Operator{Name: "--webhooks-config", Via: ViaFile}

// apply replaces the declared webhooks in all available databases by the webhooks of the file.
// It returns an error for each database that is unavailable.
func (f *WebhookFile) apply(ctx context.Context, webhooks *Webhooks, contents [][]byte, err error) error {
	declared, err := f.parse(contents, err)
	if err != nil {
		return err
	}
	var errs []error
	for _, of := range webhooks.shards {
		err := of.db.Err()
		if err == nil {
			err = of.db.Wrap(of.declare(ctx, declared, of.db.Logger(f.log)))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// declare makes the declared webhooks of a database equal to `declared`, the webhooks of the file.
// If a webhook cannot be stored or removed, declare continues with the next one and returns an
// error at the end.
func (s *webhooksOf) declare(ctx context.Context, declared map[string]DeclaredWebhook, log *slog.Logger) error {
	stored, err := s.targets.Webhooks(ctx)
	if err != nil {
		return err
	}
	present := map[string]outbound.Webhook{}
	var errs []error
	for _, w := range stored {
		present[w.Name] = w
		if _, ok := declared[w.Name]; w.Declared && !ok {
			if err := s.remove(ctx, byConfiguration, w.Name); err != nil && !errors.Is(err, ErrNoWebhook) {
				errs = append(errs, fmt.Errorf("webhook %q: %w", w.Name, err))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		d := declared[name]
		if w, ok := present[name]; ok && s.isAs(w, d) {
			continue
		}
		if _, _, err := s.put(ctx, byConfiguration, name, d.settings(), true); err != nil {
			errs = append(errs, fmt.Errorf("webhook %q: %w", name, err))
			continue
		}
		log.InfoContext(ctx, "a declared webhook was stored", "webhook", name)
	}
	return errors.Join(errs...)
}

// isAs reports whether a stored webhook equals its declaration.
func (s *webhooksOf) isAs(w outbound.Webhook, d DeclaredWebhook) bool {
	settings := d.settings()
	given, err := s.cfg.check(w.Name, &settings)
	if err != nil || !w.Declared || !sameSettings(w, settings) {
		return false
	}
	return OpenWebhook(s.cfg.Box, &w) == nil && slices.EqualFunc(w.Secrets, given, bytes.Equal)
}
