package operations_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/operations"
)

// Each mistake of a file of webhooks is named, with the webhook and the field, and
// without a secret.
func TestMistakesInDeclaredWebhooks(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
	good := `"url":"https://crm.example/hooks","secrets":["` + secret + `"],"events":["badge.changed"]`
	file := filepath.Join(t.TempDir(), "webhooks.json")
	for content, wants := range map[string][]string{
		`{"crm":{` + good + `}}`: nil,
		`{}`:                     nil,
		`[]`:                     {"want a JSON object with an entry for each webhook"},
		`null`:                   {"want a JSON object with an entry for each webhook"},
		"{\n\"crm\":{,}}":        {"line 2"},
		`{"crm":{` + good + `},"crm":{` + good + `}}`:      {"line 1", "crm"},
		`{"crm":{` + good + `,"batch":1,"batch":2}}`:       {"line 1", "batch"},
		`{"Crm":{` + good + `}}`:                           {`webhook "Crm": the name must have`},
		`{"crm":{` + good + `,"state":"paused"}}`:          {`webhook "crm": unknown field "state"`},
		`{"crm":{` + good + `,"URL":"https://b.example"}}`: {`webhook "crm": unknown field "URL"`},
		`{"crm":{` + good + `,"batch":"many"}}`:            {`webhook "crm": batch is of the wrong type`},
		`{"crm":{` + good + `,"categories":["a",7]}}`:      {`webhook "crm": categories.1 is of the wrong type`},
		`{"crm":"https://crm.example"}`:                    {`webhook "crm": must be a JSON object`},
		`{"crm":{"url":"http://crm.example","secrets":["` + secret + `"],"events":["badge.changed"]},
		  "log":{"url":"https://10.0.0.7/","secrets":["whsec_short"],"events":["badge.changes"]},
		  "old":{"url":"https://old.example/?key=hidden","events":["unread.reminder"],"batch":0}}`: {
			`webhook "crm": url must begin with https://`, `webhook "log": url belongs to a private network; secrets[0] `,
			`events[0] must be one of badge.changed, `, `webhook "old": events[0]: the server has no --remind-after`, `batch must be from 1 to 100, is 0; secrets must have at least one: `,
		},
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := operations.NewWebhookFile(file, operations.WebhookRules{}, slog.New(slog.DiscardHandler))
		if len(wants) == 0 {
			if err != nil {
				t.Errorf("%s: %v", content, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s is accepted", content)
			continue
		}
		for _, want := range append(wants, file) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %s", content, err, want)
			}
		}
		for _, hidden := range []string{secret, "whsec_short", "hidden"} {
			if strings.Contains(err.Error(), hidden) {
				t.Errorf("the error has %s: %v", hidden, err)
			}
		}
	}
	if _, err := operations.NewWebhookFile(file+".none", operations.WebhookRules{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is missing: %v", err)
	}
}

func TestDeclaredWebhooksOfThePage(t *testing.T) {
	block := snippets.With(t, "docs/webhooks.md", `"crm"`, "json")
	file := filepath.Join(t.TempDir(), "webhooks.json")
	if err := os.WriteFile(file, []byte(block.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := operations.NewWebhookFile(file, operations.WebhookRules{}, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("%s: %v", block, err)
	}
}
