package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// hookCall is a call that an endpoint has received and verified.
type hookCall struct {
	id    string
	event struct {
		ID, Type, Subject string
		Data              struct {
			Version, Total int64
			UnreadSince    map[string]time.Time `json:"unread_since"`
			Reason         string
		}
	}
}

// endpoint is a receiver of webhooks over TLS that verifies calls. answer may be replaced before the
// first call.
type endpoint struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(call int) int // returns the status for a call
	n      int
	calls  chan hookCall
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	e := &endpoint{calls: make(chan hookCall, 1000), answer: func(int) int { return http.StatusNoContent }}
	e.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // badged was killed
		}
		if err := verifier.Verify(body, r.Header); err != nil {
			t.Errorf("the endpoint cannot verify a call: %v", err)
		}
		c := hookCall{id: r.Header.Get("webhook-id")}
		if err := json.Unmarshal(body, &c.event); err != nil || c.event.ID != c.id {
			t.Errorf("a call %s has the body %s: %v", c.id, body, err)
		}
		e.mu.Lock()
		status := e.answer(e.n)
		e.n++
		e.mu.Unlock()
		e.calls <- c
		if status == 0 { // do not answer until the caller has gone
			<-r.Context().Done()
			return
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) set(answer func(call int) int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer, e.n = answer, 0
}

// next returns the next call.
func (e *endpoint) next(t *testing.T) hookCall {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case c := <-e.calls:
		return c
	case <-ctx.Done():
		t.Fatal("no call in a minute")
		return hookCall{}
	}
}

// trusting makes a server trust the certificates of endpoints.
func trusting(t *testing.T, e *endpoint) func(*exec.Cmd) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "roots.pem")
	writeFile(t, file, certificatePEM(e))
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+file) }
}

func certificatePEM(e *endpoint) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw})
}

// operator sends a request with the key of an admin and returns the answer.
func operator(t *testing.T, p *process, method, path, body string, want int) string {
	t.Helper()
	status, _, answer := requestAs(t, adminKey, method, p.url+"/admin/v1/webhooks/"+path, "application/json", body)
	if status != want {
		t.Errorf("%s %s: %d %s, want %d", method, path, status, answer, want)
	}
	return answer
}

// hookServer starts a server that calls endpoints on this machine.
func hookServer(t *testing.T, database string, e *endpoint, args ...string) *process {
	t.Helper()
	trust := trusting(t, e)
	return launch(t, func(cmd *exec.Cmd) {
		trust(cmd)
		cmd.Env = append(cmd.Env, "BADGED_ADMIN_KEYS=ops="+adminKey)
	}, append([]string{"serve", "--listen=127.0.0.1:0", "--database-url=" + database, "--webhooks-allow-private"}, args...)...)
}

func hookSettings(e *endpoint, events string) string {
	return fmt.Sprintf(`{"url":%q,"events":[%s],"secrets":[%q]}`, e.URL+"/hook?token=s3cret", events, hookSecret)
}

func TestWebhooksFollowBadges(t *testing.T) {
	e := newEndpoint(t)
	p := hookServer(t, newDatabase(t), e)
	operator(t, p, http.MethodPut, "crm", hookSettings(e, `"badge.changed"`), http.StatusCreated)
	if answer := operator(t, p, http.MethodPost, "crm/test", "", http.StatusOK); !strings.Contains(answer, `"status":204`) {
		t.Errorf("the test call answered %s", answer)
	}
	if c := e.next(t); c.event.Type != "webhook.test" {
		t.Errorf("the test call has the type %s", c.event.Type)
	}
	publish(t, p, delivered("lunch", 1, `"ada"`))
	if c := e.next(t); c.event.Type != "badge.changed" || c.event.Subject != "ada" || c.event.Data.Total != 1 {
		t.Errorf("the first call is %+v", c)
	}
	publish(t, p, event("read", "conversation.read", `{"conversation_id":"lunch","user_ids":["ada"],"up_to_seq":1}`))
	if c := e.next(t); c.event.Data.Total != 0 || c.event.Data.Version != 2 {
		t.Errorf("after the read the call is %+v", c)
	}

	// A change while the webhook is paused is reported once it is active again.
	paused := strings.Replace(hookSettings(e, `"badge.changed"`), "{", `{"state":"paused",`, 1)
	operator(t, p, http.MethodPut, "crm", paused, http.StatusOK)
	for seq := range 3 {
		publish(t, p, delivered("lunch", seq+2, `"ada"`))
	}
	operator(t, p, http.MethodPut, "crm", hookSettings(e, `"badge.changed"`), http.StatusOK)
	for c := e.next(t); c.event.Data.Total != 3; c = e.next(t) {
		if c.event.Data.Total > 3 {
			t.Fatalf("resumed, the call is %+v", c)
		}
	}
	operator(t, p, http.MethodDelete, "crm", "", http.StatusNoContent)
	operator(t, p, http.MethodGet, "crm", "", http.StatusNotFound)
	p.mustStop()
	if out := p.out.String(); strings.Contains(out, "s3cret") || strings.Contains(out, "whsec") {
		t.Errorf("the log has a secret:\n%s", out)
	}
}

// A server is killed while an endpoint handles a call. The next server makes the same call again, and
// then reports later changes.
func TestWebhookCallSurvivesAKill(t *testing.T) {
	database := newDatabase(t)
	e := newEndpoint(t)
	p := hookServer(t, database, e)
	operator(t, p, http.MethodPut, "crm", hookSettings(e, `"badge.changed"`), http.StatusCreated)
	e.set(func(int) int { return 0 })
	publish(t, p, delivered("lunch", 1, `"ada"`))
	first := e.next(t)
	p.kill()
	e.set(func(int) int { return http.StatusNoContent })
	p = hookServer(t, database, e)
	if again := e.next(t); again.id != first.id || again.event.Data.Total != 1 {
		t.Errorf("the repeated call is %+v, want %+v", again, first)
	}

	e.set(func(int) int { return 0 })
	publish(t, p, delivered("lunch", 2, `"ada"`))
	publish(t, p, delivered("lunch", 3, `"ada"`))
	e.next(t)
	p.kill()
	e.set(func(int) int { return http.StatusNoContent })
	hookServer(t, database, e)
	for c := e.next(t); c.event.Data.Total != 3; c = e.next(t) {
		if c.id == first.id {
			t.Errorf("a call that was recorded came again: %+v", c)
		}
	}
}

// A webhook gets one reminder for each time span in which something stays unread.
func TestWebhookReminds(t *testing.T) {
	e := newEndpoint(t)
	p := hookServer(t, newDatabase(t), e, "--remind-after=*=1s")
	operator(t, p, http.MethodPut, "mail", hookSettings(e, `"unread.reminder"`), http.StatusCreated)
	publish(t, p, delivered("lunch", 1, `"ada"`))
	first := e.next(t)
	if since := first.event.Data.UnreadSince; first.event.Type != "unread.reminder" || len(since) != 1 || time.Since(since["default"]) < time.Second && time.Since(since["chat"]) < time.Second {
		t.Errorf("the reminder is %+v", first)
	}
	publish(t, p, event("read", "conversation.read", `{"conversation_id":"lunch","user_ids":["ada"],"up_to_seq":1}`))
	// The call for another user comes after the calls that the read caused.
	publish(t, p, delivered("lunch", 2, `"ben"`))
	if c := e.next(t); c.event.Subject != "ben" {
		t.Errorf("the second reminder is %+v", c)
	}
}

// A webhook is refused when it is registered if its endpoint is in a private network, has a wrong
// certificate, or has not confirmed that it wants calls.
func TestWebhooksAreRefusedAtOnce(t *testing.T) {
	e := newEndpoint(t)
	database := newDatabase(t)
	admin := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "BADGED_ADMIN_KEYS=ops="+adminKey) }
	strict := launch(t, admin, "serve", "--listen=127.0.0.1:0", "--database-url="+database)
	for url, want := range map[string]string{
		e.URL: "belongs to this machine",
		strings.Replace(e.URL, "127.0.0.1", "localhost", 1): "belongs to this machine",
		strings.Replace(e.URL, "127.0.0.1", "127.1", 1):     "not written as four decimal numbers",
		"https://169.254.169.254/latest":                    "belongs to cloud metadata",
		"http://hooks.example/":                             "must begin with https://",
	} {
		status, _, answer := requestAs(t, adminKey, http.MethodPut, strict.url+"/admin/v1/webhooks/crm", "application/json", fmt.Sprintf(`{"url":%q,"events":["drift.found"]}`, url))
		if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %q", url, status, answer, want)
		}
	}
	// This server does not trust the issuer of the endpoint's certificate.
	distrusting := launch(t, admin, "serve", "--listen=127.0.0.1:0", "--database-url="+database, "--webhooks-allow-private")
	if answer := operator(t, distrusting, http.MethodPut, "crm", hookSettings(e, `"drift.found"`), http.StatusUnprocessableEntity); !strings.Contains(answer, "certificate") || strings.Contains(answer, "s3cret") {
		t.Errorf("a wrong certificate answered %s", answer)
	}
}

// Each example of docs/webhooks accepts the calls of a server. It refuses forged calls, and a call that
// was recorded ten minutes ago.
func TestReceivingExamples(t *testing.T) {
	signer, err := standardwebhooks.NewWebhook(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t) // used only for its certificate
	p := hookServer(t, newDatabase(t), e)
	printed := regexp.MustCompile(`^msg_[0-9a-f]{32} \{.*"type":"badge.changed","subject":"ada".*"total":(\d+).*\}$`)
	for i, example := range []struct {
		language string
		command  []string
	}{
		{"Go", []string{"go", "run", "../docs/webhooks/go"}},
		{"Python", []string{"python3", "../docs/webhooks/python/receive.py"}},
		{"Node", []string{"node", "../docs/webhooks/node/receive.mjs"}},
		{"Java", []string{"java", "../docs/webhooks/java/Receive.java"}},
	} {
		address := freePort(t)
		_, port, _ := net.SplitHostPort(address)
		cmd := exec.CommandContext(t.Context(), example.command[0], example.command[1:]...)
		cmd.Env = environment("PORT="+port, "WEBHOOK_SECRET="+hookSecret)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run starts another process
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range polls(t, example.language+" listens") {
			if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
				_ = conn.Close()
				break
			}
		}
		settings := fmt.Sprintf(`{"url":"http://%s/","events":["badge.changed"],"secrets":[%q]}`, address, hookSecret)
		operator(t, p, http.MethodPut, "example", settings, map[bool]int{true: http.StatusCreated, false: http.StatusOK}[i == 0])
		old := time.Now().Add(-10 * time.Minute)
		recorded, err := signer.Sign("msg_1", old, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		for signature, at := range map[string]time.Time{"v1,MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": time.Now(), recorded: old} {
			forged, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			forged.Header.Set("webhook-id", "msg_1")
			forged.Header.Set("webhook-timestamp", fmt.Sprint(at.Unix()))
			forged.Header.Set("webhook-signature", signature)
			res, err := http.DefaultClient.Do(forged)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s answered a forged call of %s with %d, want 401", example.language, at, res.StatusCode)
			}
		}
		publish(t, p, delivered("lunch", i+1, `"ada"`))
		lines := bufio.NewScanner(out)
		for said := ""; said != fmt.Sprint(i+1); { // calls that the previous program did not answer are repeated
			if !lines.Scan() {
				t.Fatalf("%s printed nothing: %v", example.language, lines.Err())
			}
			found := printed.FindStringSubmatch(lines.Text())
			if found == nil {
				t.Fatalf("%s printed %q", example.language, lines.Text())
			}
			said = found[1]
		}
		_ = cmd.Cancel()
		_ = cmd.Wait() // it was killed
	}
}

// A file declares webhooks: they are called, change with the file, and keep their state.
func TestDeclaredWebhooks(t *testing.T) {
	e, database := newEndpoint(t), newDatabase(t)
	file := filepath.Join(t.TempDir(), "webhooks.json")
	declare := func(content string) {
		t.Helper()
		writeFile(t, file, content)
	}
	crm := func(batch int) string {
		return fmt.Sprintf(`"crm":{"url":%q,"secrets":[%q],"events":["badge.changed"],"batch":%d}`, e.URL, hookSecret, batch)
	}
	declare("{" + crm(1) + "}")
	p := hookServer(t, database, e, "--webhooks-config="+file)
	shows := func(name, want string) {
		t.Helper()
		await(t, name+" to be "+want, func() bool {
			status, _, answer := requestAs(t, adminKey, http.MethodGet, p.url+"/admin/v1/webhooks/"+name, "", "")
			return strings.Contains(fmt.Sprint(status, answer), want)
		})
	}
	shows("crm", `"declared":true`)
	publish(t, p, delivered("lunch", 1, `"ada"`))
	if c := e.next(t); c.event.Subject != "ada" || c.event.Data.Total != 1 {
		t.Errorf("the endpoint got %+v", c)
	}
	// The API can change the state of a declared webhook, but not its settings, and cannot
	// delete it.
	settings := func(batch int, state string) string {
		return fmt.Sprintf(`{"url":%q,"events":["badge.changed"],"batch":%d,"state":%q}`, e.URL, batch, state)
	}
	operator(t, p, http.MethodPut, "crm", settings(1, "paused"), http.StatusOK)
	for _, refused := range []string{
		operator(t, p, http.MethodPut, "crm", settings(2, "active"), http.StatusBadRequest),
		operator(t, p, http.MethodDelete, "crm", "", http.StatusBadRequest),
	} {
		if !strings.Contains(refused, "--webhooks-config") {
			t.Errorf("refused with %s", refused)
		}
	}
	// A webhook that was created over the API stays. A file with a mistake changes nothing.
	// Otherwise the settings of declared webhooks follow the file.
	operator(t, p, http.MethodPut, "own", settings(1, "paused"), http.StatusCreated)
	declare("{" + crm(1) + `,"log":{}}`)
	p.awaitSays(`webhook \"log\": url must begin with https://`)
	declare("{" + crm(7) + "}")
	shows("crm", `"batch":7,"state":"paused","declared":true`)
	declare("{}")
	shows("crm", "404")
	shows("own", "200")
	if strings.Contains(p.out.String(), hookSecret) {
		t.Error("the log has the secret")
	}
}
