package tests

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// demo starts the demo on a data directory.
func demo(t *testing.T, dir string) *process {
	t.Helper()
	return launch(t, nil, "demo", "--listen=127.0.0.1:0", "--data-dir="+dir)
}

// people returns the demo's users and their tokens.
func people(t *testing.T, p *process) map[string]string {
	t.Helper()
	var in struct {
		Users []struct {
			UserID string `json:"user_id"`
			Token  string `json:"token"`
		} `json:"users"`
	}
	get(t, p.url+"/demo/users", &in)
	tokens := map[string]string{}
	for _, u := range in.Users {
		tokens[u.UserID] = u.Token
	}
	return tokens
}

// The demo serves its page, and messages and reads change badges. Its data survives a restart and
// a kill. After a kill no process of the demo remains.
func TestDemo(t *testing.T) {
	t.Parallel()
	dir := pgtest.OpenDir(t)
	p := demo(t, dir)
	if status, _, page := request(t, http.MethodGet, p.url+"/", "", ""); status != http.StatusOK || !strings.Contains(page, "<title>") {
		t.Fatalf("the page is %d %s", status, page)
	}
	if _, _, answer := request(t, http.MethodPost, p.url+"/demo/simulation", "application/json", `{"running":false}`); !strings.Contains(answer, "false") {
		t.Fatalf("the simulation answers %s", answer)
	}
	ben := connectWith(t, p.url, people(t, p)["ben"])
	ben.awaitTotal(0)
	for range 2 {
		if status, _, answer := request(t, http.MethodPost, p.url+"/demo/messages", "application/json",
			`{"conversation_id":"ada-ben","sender_id":"ada","text":"Hello @Ben"}`); status != http.StatusOK {
			t.Fatalf("send: %d %s", status, answer)
		}
	}
	ben.awaitTotal(2)
	ben.say(`{"t":"read","id":1,"conversation_id":"ada-ben","up_to_seq":1}`)
	ben.awaitTotal(1)
	refusesOtherPages(t, p)
	p.mustStop()

	p = demo(t, dir)
	ben = connectWith(t, p.url, people(t, p)["ben"])
	ben.awaitTotal(1)
	postmaster := postmasterOf(t, dir)
	p.kill()
	await(t, "Postgres to end", func() bool { return syscall.Kill(postmaster, 0) != nil })

	p = demo(t, dir)
	ben = connectWith(t, p.url, people(t, p)["ben"])
	ben.awaitTotal(1)
	p.mustStop() // otherwise its Postgres would briefly outlive its directory
}

// refusesOtherPages checks that every route of the demo refuses requests of other web pages.
func refusesOtherPages(t *testing.T, p *process) {
	t.Helper()
	for path, want := range map[string]int{"/demo/users": http.StatusOK, "/metrics": http.StatusOK, "/admin/": http.StatusOK, "/v1/ws": http.StatusUpgradeRequired} {
		for host, want := range map[string]int{strings.TrimPrefix(p.url, "http://"): want, "evil.example": http.StatusMisdirectedRequest} {
			c := dialRaw(t, p)
			c.send([]byte("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"))
			res := c.answer()
			_ = res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("%s of %s is answered with %d, want %d", path, host, res.StatusCode, want)
			}
		}
	}
}

func postmasterOf(t *testing.T, dir string) int {
	t.Helper()
	b := readFile(t, filepath.Join(dir, "pgdata", "postmaster.pid"))
	line, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestDemoReportsATakenPort(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, stderr, code := command(t, "demo", "--listen="+l.Addr().String(), "--data-dir="+pgtest.OpenDir(t))
	if code != 1 || !strings.Contains(stderr, "another program is listening there") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// Runs the demo as an unprivileged user too: as root its Postgres runs as another user, otherwise
// as the same user, and both must work.
func TestDemoAsAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("not root: the other tests of the demo cover this")
		return
	}
	const unprivileged = 65534
	dir := pgtest.OpenDir(t)
	if err := os.Chown(dir, unprivileged, unprivileged); err != nil {
		t.Fatal(err)
	}
	p := launch(t, func(cmd *exec.Cmd) {
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
		cmd.Env = append(cmd.Env, "HOME="+dir)
	}, "demo", "--listen=127.0.0.1:0", "--data-dir="+dir)
	connectWith(t, p.url, people(t, p)["ada"]).awaitTotal(0)
	p.mustStop()
}
