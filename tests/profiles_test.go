package tests

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/accesstest"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// Each kind of process serves profiles to admins, and only on its listener for operators.
func TestProfilesOfEveryProcess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	writeFile(t, file, accesstest.File(accesstest.Keys()...))
	database, redis := newDatabase(t), newRedis(t)
	type listener struct{ url, admin string }
	var listeners []listener
	var api *process
	for _, role := range []string{"api", "projector", "gateway", "notifier"} {
		p := serve(t, database, "--roles="+role, "--redis-url="+redis.URL(), "--internal-listen=127.0.0.1:0", "--admin-keys=ops="+adminKey, "--keys-file="+file)
		if role == "api" {
			api = p
		}
		listeners = append(listeners, listener{p.internal(), adminKey}, listener{p.internal(), "admin"})
		if status, _ := ask(t, http.MethodGet, p.url+"/debug/pprof/", adminKey); status != http.StatusNotFound {
			t.Errorf("the public listener of the role %s answers %d", role, status)
		}
	}
	// A process without the role api may lack the file.
	without := serve(t, database, "--roles=notifier", "--redis-url="+redis.URL(), "--internal-listen=127.0.0.1:0", "--admin-keys=ops="+adminKey, "--keys-file="+file+".missing")
	listeners = append(listeners, listener{without.internal(), adminKey})
	for _, p := range []*process{
		start(t, nil, "ingest", "--listen=127.0.0.1:0", "--database-url="+database, "--from="+redis.URL()+"?stream=chat", "--admin-keys=ops="+adminKey),
		startRelay(t, newOutbox(t, pgtest.Borrow(t)), api, "--admin-keys=ops="+adminKey),
		start(t, nil, "tail", "--listen=127.0.0.1:0", "--database-url="+database, "--to="+redis.URL()+"?stream=events", "--admin-keys=ops="+adminKey),
	} {
		p.awaitReady()
		listeners = append(listeners, listener{p.url, adminKey})
	}
	for _, l := range listeners {
		for secret, want := range map[string]int{"": http.StatusUnauthorized, "frobnicate": http.StatusUnauthorized, token(t, "ada"): http.StatusUnauthorized, l.admin: http.StatusOK} {
			if status, _, answer := requestAs(t, secret, http.MethodGet, l.url+"/debug/pprof/goroutine?debug=1", "", ""); status != want || (status == http.StatusOK) != strings.HasPrefix(answer, "goroutine profile: total ") {
				t.Errorf("%s with %q answers %d %.100s, want %d", l.url, secret, status, answer, want)
			}
		}
	}
}

// A profile is complete even if it runs longer than the time in which clients must read an answer.
func TestProfilesOverALongTime(t *testing.T) {
	t.Parallel()
	const seconds = 12
	var g sync.WaitGroup
	for _, names := range [][]string{{"profile", "heap"}, {"trace"}} { // a process allows only one profile or trace of these kinds at a time
		p := serve(t, newDatabase(t), "--internal-listen=127.0.0.1:0", "--admin-keys=ops="+adminKey)
		for _, name := range names {
			g.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s/debug/pprof/%s?seconds=%d", p.internal(), name, seconds), nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer "+adminKey)
				began := time.Now()
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				body, err := io.ReadAll(res.Body) // fails if the last chunk is missing
				if name != "trace" && err == nil {
					var z *gzip.Reader
					if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
						_, err = io.Copy(io.Discard, z) // checks the checksum at the end
					}
				}
				if took := time.Since(began); res.StatusCode != http.StatusOK || err != nil || len(body) == 0 || took < seconds*time.Second {
					t.Errorf("%s after %v: %d, %d bytes, %v", name, took, res.StatusCode, len(body), err)
				}
			})
		}
	}
	g.Wait()
}
