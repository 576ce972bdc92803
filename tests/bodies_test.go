package tests

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// chartMemory is the memory limit of the Helm chart, in bytes.
const chartMemory = 512 << 20

// mostMemory returns the peak resident memory of a process, in bytes.
func (p *process) mostMemory() int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return kib << 10
}

// Requests whose bodies do not arrive, and many large bodies at once, keep the process within the
// memory limit of the Helm chart, and do not exclude other clients.
func TestBodiesStayWithinTheMemoryOfTheChart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	writeKeys(t, file, keyEntry("slow", "publisher", ", rate: 1, quota: 1"), keyEntry("crm", "publisher", ""), keyEntry("crowd", "publisher", ""))
	p := launch(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "GOMEMLIMIT="+strconv.Itoa(chartMemory/10*9)) },
		"serve", "--listen=127.0.0.1:0", "--migrate", "--database-url="+newDatabase(t), "--keys-file="+file)

	// hold sends requests without the last byte of their bodies, and returns how many are
	// refused already.
	hold := func(n, size int, secret, method, path string) (refused int) {
		t.Helper()
		body := []byte(strings.Repeat(" ", size-1))
		answers := make(chan *http.Response, n)
		var sending sync.WaitGroup
		for range n {
			c := dialRaw(t, p)
			sending.Go(func() {
				c.send(fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", method, path, secret, size))
				res := c.answer()
				_ = res.Body.Close()
				if res.StatusCode == http.StatusContinue {
					c.send(body)
				}
				answers <- res
			})
		}
		sending.Wait()
		for range n {
			switch res := <-answers; res.StatusCode {
			case http.StatusContinue:
			case http.StatusTooManyRequests, http.StatusServiceUnavailable:
				refused++
				if res.Header.Get("Retry-After") == "" {
					t.Errorf("%s is refused with %d, without Retry-After", path, res.StatusCode)
				}
			case http.StatusRequestEntityTooLarge:
				refused++
			default:
				t.Errorf("%s is answered with %d", path, res.StatusCode)
			}
		}
		return refused
	}
	const large = 8 << 20
	if n := hold(58, large, "slow", http.MethodPost, "/v1/events"); n < 50 {
		t.Errorf("of 58 bodies of a key, %d are refused", n)
	}
	if n := hold(60, large, token(t, "ann"), http.MethodPut, "/v1/users/ann/devices/phone"); n != 60 {
		t.Errorf("of 60 devices of 8 MiB, %d are refused", n)
	}
	if n := hold(20, 16<<10, token(t, "ann"), http.MethodPut, "/v1/users/ann/devices/phone"); n < 10 {
		t.Errorf("of 20 devices of a user, %d are refused", n)
	}
	if n := hold(20, 4<<10, token(t, "ben"), http.MethodPost, "/v1/commands"); n != 0 {
		t.Errorf("of 20 commands of another user, %d are refused", n)
	}
	wantStatus(t, "crm", http.MethodPost, p.url+"/v1/events", "application/json", delivered("lunch", 1, `"ann"`), http.StatusAccepted)

	// Well-behaved publishers repeat refused requests. The last event of each body is
	// invalid, so that the whole body is decoded and nothing is stored.
	var events strings.Builder
	for i := 0; events.Len() < 5_000_000; i++ {
		events.WriteString(strings.ReplaceAll(delivered(fmt.Sprintf("room-%d", i), 1, `"`+strings.Repeat(`ann","`, 120)+`ben"`), "\n", "") + "\n")
	}
	events.WriteString("{}\n")
	body := events.String()
	var publishing sync.WaitGroup
	for i := range 60 {
		publishing.Go(func() {
			for range polls(t, "a large body to be read") {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/events", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+[]string{"crm", "crowd"}[i%2])
				req.Header.Set("Content-Type", "application/x-ndjson")
				req.Header.Set("Expect", "100-continue")
				res, err := patient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				text, _ := io.ReadAll(res.Body) // the part that was read suffices
				_ = res.Body.Close()
				switch res.StatusCode {
				case http.StatusBadRequest:
					return
				case http.StatusTooManyRequests, http.StatusServiceUnavailable:
				default:
					t.Errorf("a large body is answered with %d %s", res.StatusCode, text)
					return
				}
			}
		})
	}
	publishing.Wait()
	if limit := p.mostMemory(); limit > chartMemory {
		t.Errorf("the process took %d MiB", limit>>20)
	} else {
		t.Logf("the process took %d MiB", limit>>20)
	}
}

// patient is a client that sends a body only when the server asks for it.
var patient = &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute, MaxIdleConnsPerHost: 60}}
