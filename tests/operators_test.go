package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ask sends a request with a key, "" for none, and returns status and header.
func ask(t *testing.T, method, url, key string) (status int, header http.Header) {
	t.Helper()
	status, header, _ = requestAs(t, key, method, url, "", "")
	return status, header
}

// internal returns the URL of the listener for operators.
func (p *process) internal() string {
	_, rest, _ := strings.Cut(p.out.String(), "badged: for operators on ")
	url, _, _ := strings.Cut(rest, "\n")
	return url
}

// Routes for operators are only on the internal listener, and routes for clients and publishers are
// only on the other listener.
func TestInternalListener(t *testing.T) {
	t.Parallel()
	const adminKey = "an-admin-key-of-some-length"
	p := serve(t, newDatabase(t), "--internal-listen=127.0.0.1:0", "--admin-keys=op="+adminKey)
	internal := p.internal()
	if !strings.HasPrefix(internal, "http://127.0.0.1:") || internal == p.url {
		t.Fatalf("it does not print the address:\n%s", p.out)
	}
	for _, test := range []struct {
		path, key        string
		public, internal int
	}{
		{"/livez", "", http.StatusOK, http.StatusOK},
		{"/readyz", "", http.StatusNotFound, http.StatusOK},
		{"/metrics", "", http.StatusNotFound, http.StatusOK},
		{"/openapi.json", "", http.StatusNotFound, http.StatusOK},
		{"/asyncapi.json", "", http.StatusNotFound, http.StatusOK},
		{"/admin/", "", http.StatusNotFound, http.StatusOK},
		{"/admin/v1/partitions", adminKey, http.StatusNotFound, http.StatusOK},
		{"/debug/pprof/", adminKey, http.StatusNotFound, http.StatusOK},
		{"/v1/users/ada/badge", publisherKey, http.StatusOK, http.StatusNotFound},
		{"/v1/ws", "", http.StatusUpgradeRequired, http.StatusNotFound},
	} {
		if status, _ := ask(t, http.MethodGet, p.url+test.path, test.key); status != test.public {
			t.Errorf("%s is answered with %d on the public listener, want %d", test.path, status, test.public)
		}
		if status, _ := ask(t, http.MethodGet, internal+test.path, test.key); status != test.internal {
			t.Errorf("%s is answered with %d on the internal one, want %d", test.path, status, test.internal)
		}
	}
	must(t, "ready", "--url="+internal)
	p.mustStop()
}

// Requests with wrong keys are logged without the key. Their address is slowed down unless it has
// also sent a valid key.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	const adminKey, wrong = "an-admin-key-of-some-length", "a-guess-that-is-wrong"
	p := serve(t, newDatabase(t), "--admin-keys=op="+adminKey)
	admin, badge := p.url+"/admin/v1/partitions", p.url+"/v1/users/ada/badge"

	if status, _ := ask(t, http.MethodGet, badge, publisherKey); status != http.StatusOK {
		t.Fatalf("a good key is answered with %d", status)
	}
	for range 100 { // from an address that sent a valid key
		if status, _ := ask(t, http.MethodGet, badge, wrong); status != http.StatusUnauthorized {
			t.Fatalf("a wrong publisher's key is answered with %d", status)
		}
	}
	slowed := false
	for range 1000 {
		status, header := ask(t, http.MethodGet, admin, wrong)
		if status == http.StatusTooManyRequests {
			slowed = header.Get("Retry-After") != ""
			break
		}
		if status != http.StatusUnauthorized {
			t.Fatalf("a wrong admin's key is answered with %d", status)
		}
	}
	if !slowed {
		t.Error("a thousand wrong keys are checked")
	}
	if status, _ := ask(t, http.MethodGet, badge, publisherKey); status != http.StatusOK {
		t.Errorf("a publisher's key is then answered with %d", status)
	}
	p.awaitSays(`msg="wrong key" of=admin address=127.0.0.1/32`)
	out := p.out.String()
	if n := strings.Count(out, "wrong key"); n != 2 {
		t.Errorf("%d lines are logged", n)
	}
	if strings.Contains(out, wrong) {
		t.Error("the key is logged")
	}
	page := metricsOf(t, p)
	if n := metric(t, page, `badged_http_wrong_keys_total{kind="admin"}`); n < 20 {
		t.Errorf("%v wrong keys are counted", n)
	}
}

// serve prints the same warnings about weak keys as config check.
func TestServeWarnsAboutWeakKeys(t *testing.T) {
	t.Parallel()
	weak := []string{"--admin-keys=op=short,twin=" + publisherKey, "--jwt-keys=k1=HS256:" + strings.Repeat("ab", 16)}
	p := serve(t, newDatabase(t), append(weak, "--publisher-keys=backend="+publisherKey)...)
	stdout, _, _ := command(t, append([]string{"config", "check", "--json", "--database-url=x", "--publisher-keys=backend=" + publisherKey}, weak...)...)
	var report struct{ Warnings []string }
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	said := 0
	for _, warning := range report.Warnings {
		if !strings.Contains(warning, "-keys: ") {
			continue
		}
		said++
		if !strings.Contains(p.out.String(), fmt.Sprintf("%q", warning)) {
			t.Errorf("serve does not warn: %s", warning)
		}
	}
	if said != 6 {
		t.Errorf("%d warnings about keys: %q", said, report.Warnings)
	}
}

// The audit trail has the actions of operators and keys on users: reads by the command line,
// disconnects with the name of the key, and bad tokens on every route.
func TestAuditOfUsers(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	publish(t, p, delivered("lunch", 1, `"ada"`))
	stolen := issued(t, "ada", time.Now().Add(-time.Hour))
	disconnect(t, p, "ada", `{"revoke":true}`)
	connectWith(t, p.url, stolen).awaitEnd()
	requestAs(t, stolen, http.MethodGet, p.url+"/v1/sse", "", "")
	requestAs(t, stolen, http.MethodPost, p.url+"/v1/commands", "application/json", `{"t":"read_all"}`)
	requestAs(t, stolen, http.MethodGet, p.url+"/v1/users/ada/badge", "", "")
	for _, args := range [][]string{{"user", "show", "ada"}, {"user", "explain", "ada"}, {"user", "export", "ada"}, {"log", "--user=ada"}} {
		must(t, append(args, "--database-url="+database)...)
	}
	p.mustStop()
	trail := must(t, "audit", "list", "--json", "--database-url="+database)
	for _, want := range []string{
		`"action":"user.disconnect","arguments":{"user":"ada","revoke_before":"`, `"action":"user.show","arguments":{"user":"ada"}`,
		`"action":"user.explain","arguments":{"user":"ada"}`, `"action":"user.export"`, `"action":"log.read","arguments":{"user":"ada"}`,
		`"action":"signin.failed","arguments":{"key_of":"user","times":4,`,
	} {
		if !strings.Contains(strings.Join(strings.Fields(trail), ""), want) {
			t.Errorf("the trail lacks %s:\n%s", want, trail)
		}
	}
	if !strings.Contains(trail, `"127.0.0.1/32"`) {
		t.Errorf("the trail does not say where bad tokens came from:\n%s", trail)
	}
	must(t, "audit", "verify", "--database-url="+database)
}

// `audit verify` reports the redactions of records by erasures.
func TestRedactionsAreTold(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t) // with shards each shard has its own trail
	p := serve(t, database)
	total(t, p, "ada", publish(t, p, delivered("lunch", 1, `"ada"`)))
	verify := []string{"audit", "verify", "--database-url=" + database}
	must(t, "user", "show", "ada", "--database-url="+database)
	_, head, _ := strings.Cut(must(t, verify...), "\n")
	withHead := append(verify, strings.Fields(head)...)
	must(t, "user", "erase", "ada", "--database-url="+database)
	out := must(t, withHead...)
	contains(t, out, "\n1 redaction of arguments, results and errors, from which users were erased; 1 since the given head:\n  record ", " via cli, of record 3\n")
}
