package tests

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// Idle connections of users and keys use no more than their shares of open files. With the default
// limit on open files, new sockets, publishers and readiness probes are still served.
func TestIdleConnectionsShutOutNobody(t *testing.T) {
	const files, many = 1024, 922
	p := withFiles(t, files, "serve", "--listen=127.0.0.1:0", "--migrate", "--database-url="+newDatabase(t))
	here := connect(t, p.url, "ann")
	publish(t, p, delivered("c", 1, `"ann","bob"`))
	here.awaitTotal(1)

	keep := func(what, secret string) {
		t.Helper()
		kept := make([]*rawClient, many)
		for i := range kept {
			kept[i] = dialRaw(t, p)
			kept[i].send(fmt.Appendf(nil, "GET /v1/users/ann/badge HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", secret))
			res := kept[i].answer()
			if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
				t.Fatalf("connection %d of %s is answered with %d", i, what, res.StatusCode)
			}
			_ = res.Body.Close()
		}
		http.DefaultClient.CloseIdleConnections()
		wantStatus(t, publisherKey, http.MethodGet, p.url+"/readyz", "", "", http.StatusOK)
		connect(t, p.url, "bob").awaitTotal(1)
		if page := metricsOf(t, p); metric(t, page, `badged_http_connections{state="authenticated"}`) > files/4 {
			t.Errorf("of %s, too many connections are kept:\n%s", what, page)
		}
	}
	keep("a user", token(t, "ann"))
	keep("a key", publisherKey)
	publish(t, p, delivered("c", 2, `"ann","bob"`))
	here.awaitTotal(2)
	if strings.Contains(p.out.String(), "too many open files") {
		t.Error("the process ran out of open files")
	}
}

// A process that may open fewer files than it needs reports it when it starts, and `config check`
// does too.
func TestTooFewOpenFiles(t *testing.T) {
	t.Parallel()
	run := func(files int, args ...string) (out string, code int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files), binary}, args...)...)
		cmd.Env = environment("BADGED_JWT_KEYS="+jwtKeys, "BADGED_PUBLISHER_KEYS=backend="+publisherKey, "GOMEMLIMIT=512MiB")
		text, _ := cmd.CombinedOutput() // the test looks only at the output
		return string(text), cmd.ProcessState.ExitCode()
	}
	database := "--database-url=" + oneDatabase(t)
	for _, args := range [][]string{{"serve", "--listen=127.0.0.1:0", database}, {"config", "check", database}} {
		if out, code := run(100, args...); code == 0 || !strings.Contains(out, "may have 100 open files") || !strings.Contains(out, "ulimit -n") {
			t.Errorf("%v with 100 open files exits with %d:\n%s", args[0], code, out)
		}
	}
	for setting, want := range map[string]string{"300": "--body-memory-mib 300: the memory limit here is 512 MiB", "63": "--body-memory-mib must be at least 64"} {
		if out, _ := run(1024, "config", "check", database, "--body-memory-mib="+setting); !strings.Contains(out, want) {
			t.Errorf("config check with %s MiB for bodies prints\n%s", setting, out)
		}
	}
	if out, code := run(1024, "config", "check", database, "--max-connections=5000"); code != 0 || !strings.Contains(out, "--max-connections 5000: the limit of open files here allows") {
		t.Errorf("config check with 1024 open files exits with %d:\n%s", code, out)
	}
}
