package tests

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/badged/badged/internal/server/keyring"
)

// writeKeys writes a file of keys, in place.
func writeKeys(t *testing.T, file string, keys ...string) {
	t.Helper()
	writeFile(t, file, "keys:\n"+strings.Join(keys, ""))
}

// keyEntry returns an entry for a file of keys. The secret equals the name.
func keyEntry(name, kind, more string) string {
	return "- {name: " + name + ", kind: " + kind + ", secret: " + keyring.Hash(name) + more + "}\n"
}

// messageFrom is an event of a source.
func messageFrom(source, id string) string {
	return `{"specversion":"1.0","id":"` + id + `","source":"` + source + `","type":"message.delivered","data":{"conversation_id":"` + id + `","seq":1,"user_ids":["ada"]}}`
}

// Follows the instructions of docs/access.md for a leaked key of a publisher. The key is found by
// its name and revoked without a restart. Its events are listed and recalled, while other
// publishers continue.
func TestALeakedKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	crm, chat, push := keyEntry("crm", "publisher", ", sources: [crm]"), keyEntry("chat", "publisher", ", sources: [chat]"), keyEntry("push", "reader", "")
	writeKeys(t, file, crm, chat, push)
	database := newDatabase(t)
	p := serve(t, database, "--keys-file="+file)
	publish := func(key, event string) (int, string) {
		t.Helper()
		for range polls(t, "the keys to be loaded") {
			status, _, answer := requestAs(t, key, http.MethodPost, p.url+"/v1/events", "application/json", event)
			if !strings.Contains(answer, "the keys changed while the request was under way") { // the answer says to repeat the request
				return status, answer
			}
		}
		panic("unreachable")
	}
	total := func() string {
		t.Helper()
		status, _, badge := requestAs(t, "push", http.MethodGet, p.url+"/v1/users/ada/badge", "", "")
		if status != http.StatusOK {
			t.Fatalf("the reader: %d %s", status, badge)
		}
		_, rest, _ := strings.Cut(badge, `"total":`)
		n, _, _ := strings.Cut(rest, ",")
		return n
	}
	for _, id := range []string{"forged-1", "forged-2"} {
		if status, answer := publish("crm", messageFrom("crm", id)); status != http.StatusAccepted {
			t.Fatalf("the leaked key publishes: %d %s", status, answer)
		}
	}
	if status, answer := publish("chat", messageFrom("chat", "real-1")); status != http.StatusAccepted {
		t.Fatalf("another key publishes: %d %s", status, answer)
	}
	// The limits of the key hold: it cannot publish as another source, and cannot read.
	if status, answer := publish("crm", messageFrom("chat", "forged-3")); status != http.StatusForbidden || !strings.Contains(answer, `"field":"source"`) {
		t.Errorf("with the source of another: %d %s", status, answer)
	}
	wantStatus(t, "crm", http.MethodGet, p.url+"/v1/users/ada/badge", "", "", http.StatusForbidden)
	if status, answer := publish("push", messageFrom("crm", "forged-4")); status != http.StatusForbidden || !strings.Contains(answer, "the key push is a reader's, and may not publish") {
		t.Errorf("a reader publishes: %d %s", status, answer)
	}

	// The metrics show the key by its name.
	metrics := metricsOf(t, p)
	contains(t, metrics,
		`badged_keys_events_total{key="crm",kind="publisher"} 2`, `badged_keys_refused_total{key="crm",kind="publisher",reason="source"} 1`,
	)

	// The key is revoked. A first attempt has a broken file, which changes nothing.
	writeKeys(t, file, chat, push, "- {name: crm-2}\n")
	p.awaitSays("the file of keys has mistakes; the keys loaded before stay valid")
	if status, answer := publish("chat", messageFrom("chat", "real-2")); status != http.StatusAccepted {
		t.Errorf("beside a broken file: %d %s", status, answer)
	}
	writeKeys(t, file, chat, push)
	p.awaitSays("removed=[crm]")
	if status, answer := publish("crm", messageFrom("crm", "forged-5")); status != http.StatusUnauthorized {
		t.Errorf("the revoked key publishes: %d %s", status, answer)
	}
	if status, answer := publish("chat", messageFrom("chat", "real-3")); status != http.StatusAccepted {
		t.Errorf("the others are affected: %d %s", status, answer)
	}

	until(t, database, `SELECT EXISTS (SELECT FROM badged.audit WHERE arguments::jsonb @> '{"removed": ["crm"]}')`)
	prints(t, `"removed":["crm"]`, "audit", "list", "--database-url="+database)

	// The forged events are listed, and recalled with a new key.
	var forged []string
	for line := range strings.Lines(must(t, "log", "--database-url="+database, "--published-by=crm")) {
		forged = append(forged, line)
	}
	if len(forged) != 2 || !strings.Contains(forged[0], `"publishedby":"crm"`) || !strings.Contains(forged[0]+forged[1], "forged-1") || !strings.Contains(forged[0]+forged[1], "forged-2") {
		t.Errorf("the log of what the key crm published is %s", forged)
	}
	writeKeys(t, file, chat, push, keyEntry("crm-2", "publisher", ", sources: [crm]"))
	p.signal(syscall.SIGHUP)
	p.awaitSays("added=[crm-2]")
	for _, id := range []string{"forged-1", "forged-2"} {
		recall := strings.NewReplacer("message.delivered", "message.recalled", `"id":"`, `"id":"recall-`).Replace(messageFrom("crm", id))
		if status, answer := publish("crm-2", recall); status != http.StatusAccepted {
			t.Fatalf("recall: %d %s", status, answer)
		}
	}
	await(t, "only the real messages to count", func() bool { return total() == "3" })
	p.mustStop()
}

// A token that is valid for longer than --jwt-max-lifetime is refused on every route that accepts
// tokens.
func TestTokensThatLiveTooLong(t *testing.T) {
	p := serve(t, newDatabase(t), "--jwt-max-lifetime=1h")
	for ttl, want := range map[string]int{"1h": http.StatusOK, "2h": http.StatusUnauthorized} {
		token := strings.TrimSpace(must(t, "token", "ada", "--ttl="+ttl))
		status, _, answer := requestAs(t, token, http.MethodGet, p.url+"/v1/users/ada/badge", "", "")
		if status != want {
			t.Errorf("the badge, with a token for %s: %d %s", ttl, status, answer)
		}
		if want == http.StatusOK {
			want = http.StatusBadRequest // the token is admitted, but the command is invalid
		}
		wantStatus(t, token, http.MethodPost, p.url+"/v1/commands", "application/json", "{}", want)
	}
}
