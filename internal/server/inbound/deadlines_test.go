package inbound

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a listener with one connection in memory. In a synctest bubble, time
// advances when all goroutines wait for it.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipe) Close() error   { close(p.closed); return nil }
func (p pipe) Addr() net.Addr { return &net.UnixAddr{Name: "badged.test"} }

// client is the client of a server that Deadlines guards.
type client struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func serve(t *testing.T, h http.HandlerFunc) *client {
	t.Helper()
	p := pipe{make(chan net.Conn, 1), make(chan struct{})}
	here, there := net.Pipe()
	p.conns <- there
	server := &http.Server{Handler: Deadlines(h, nil), ReadHeaderTimeout: Grace, IdleTimeout: time.Hour}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(p) }() // until it is closed
	t.Cleanup(func() {
		_ = here.Close()
		_ = server.Close()
		<-served
		time.Sleep(time.Hour) // of the bubble: the connection ends
	})
	return &client{t, here, bufio.NewReader(here)}
}

// send writes in a goroutine, because the server may not read.
func (c *client) send(text string) { go func() { _, _ = io.WriteString(c.conn, text) }() }

func (c *client) answer() (status int, body string) {
	c.t.Helper()
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// awaitEnd returns how much longer the server keeps the connection.
func (c *client) awaitEnd() time.Duration {
	c.t.Helper()
	began := time.Now()
	if b, err := io.ReadAll(c.in); err != nil || len(b) > 0 {
		c.t.Errorf("at the end came %q, %v", b, err)
	}
	return time.Since(began)
}

// readAll answers with the size of the body, or 408.
func readAll(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.WriteHeader(http.StatusRequestTimeout)
		return
	}
	fmt.Fprint(w, len(b), err)
}

func TestBodyThatNeverComes(t *testing.T) {
	for name, head := range map[string]string{
		"with a length":  "Content-Length: 100000\r\n\r\n",
		"in chunks":      "Transfer-Encoding: chunked\r\n\r\n",
		"not to its end": "Content-Length: 100000\r\n\r\nx",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, readAll)
				began := time.Now()
				c.send("POST / HTTP/1.1\r\nHost: x\r\n" + head)
				if status, _ := c.answer(); status != http.StatusRequestTimeout {
					t.Errorf("the answer is %d", status)
				}
				if took := time.Since(began); took < Grace || took > Grace+time.Second {
					t.Errorf("it took %v", took)
				}
				if took := c.awaitEnd(); took > linger {
					t.Errorf("the connection lasted for another %v", took)
				}
			})
		})
	}
}

// A body that arrives slowly but steadily is accepted; one that trickles is refused, and
// one that takes more than a minute.
func TestBodyThatComesSlowly(t *testing.T) {
	for name, tc := range map[string]struct {
		pieces, size int
		pause        time.Duration
		status       int
	}{
		"8 MiB in 50 seconds":            {50, 164 << 10, time.Second, http.StatusOK},
		"900 KiB at 20 KiB a second":     {45, 20 << 10, time.Second, http.StatusOK},
		"8 MiB at 20 KiB a second":       {410, 20 << 10, time.Second, http.StatusRequestTimeout},
		"a byte every nine seconds":      {1000, 1, 9 * time.Second, http.StatusRequestTimeout},
		"8 MiB at 10 KiB a second":       {820, 10 << 10, time.Second, http.StatusRequestTimeout},
		"all at once after nine seconds": {1, 1 << 20, 9 * time.Second, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, readAll)
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					_, err := fmt.Fprintf(c.conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", tc.pieces*tc.size)
					for i := 0; i < tc.pieces && err == nil; i++ {
						time.Sleep(tc.pause) // of the bubble
						_, err = io.WriteString(c.conn, strings.Repeat("x", tc.size))
					}
				}()
				status, body := c.answer()
				if want := fmt.Sprint(tc.pieces*tc.size, nil); status != tc.status || status == http.StatusOK && body != want {
					t.Errorf("the answer is %d %s", status, body)
				}
				_ = c.conn.Close()
				<-sent
			})
		})
	}
}

// A request whose body the handler does not read is answered at once, and its
// connection ends.
func TestUnreadBody(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"an answer":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"a long one":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 10_000)) },
		"no answer":    func(http.ResponseWriter, *http.Request) {},
		"one in parts": func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serve(t, h)
				began := time.Now()
				c.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
				c.answer()
				if name != "one in parts" { // its answer ends with the connection
					if took := time.Since(began); took > 0 {
						t.Errorf("the answer took %v", took)
					}
				}
				if took := c.awaitEnd(); took > linger {
					t.Errorf("the connection lasted for another %v", took)
				}
			})
		})
	}
}

// An answer that the client does not read ends the connection; one that it
// reads slowly but steadily is sent in full. The handler's own time does not
// count.
func TestAnswerThatIsNotRead(t *testing.T) {
	const size = 1 << 20
	write := func(w http.ResponseWriter, _ *http.Request) {
		for range 16 {
			time.Sleep(time.Minute) // of the bubble
			_, _ = io.WriteString(w, strings.Repeat("x", size/16))
		}
	}
	t.Run("never", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan time.Duration, 1)
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				began := time.Now()
				_, err := io.WriteString(w, strings.Repeat("x", size))
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("writing ended with %v", err)
				}
				ended <- time.Since(began)
			})
			c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if took := <-ended; took > Grace+allowed(size) {
				t.Errorf("it lasted for %v", took)
			}
		})
	})
	t.Run("a little", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := serve(t, write)
			c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			began, read := time.Now(), 0
			for err := error(nil); err == nil; {
				time.Sleep(time.Second) // of the bubble
				var n int
				n, err = c.conn.Read(make([]byte, 100))
				read += n
			}
			if took := time.Since(began); read >= size || took > 16*time.Minute+Grace+allowed(size) {
				t.Errorf("%d bytes went in %v", read, took)
			}
		})
	})
	t.Run("slowly", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := serve(t, write)
			c.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			read := 0
			for err := error(nil); err == nil; {
				time.Sleep(time.Second / 4) // of the bubble
				var n int
				n, err = io.ReadFull(c.conn, make([]byte, 5<<10))
				read += n
			}
			if read < size {
				t.Errorf("%d bytes went", read)
			}
		})
	})
}

// A connection stays open after requests whose bodies were read.
func TestConnectionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, readAll)
		for range 3 {
			c.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi")
			if status, body := c.answer(); status != http.StatusOK || body != "2 <nil>" {
				t.Errorf("the answer is %d %s", status, body)
			}
			time.Sleep(2 * Grace) // of the bubble: no deadline is left
		}
	})
}

// Handlers that hijack a connection, or set deadlines, have no other
// deadlines.
func TestHandlersWithDeadlinesOfTheirOwn(t *testing.T) {
	t.Run("a stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				control := http.NewResponseController(w)
				for range 100 {
					_ = control.SetWriteDeadline(time.Now().Add(time.Minute))
					_, _ = io.WriteString(w, "x")
					_ = control.Flush()
					time.Sleep(time.Minute / 2) // of the bubble
				}
			})
			c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, body := c.answer(); len(body) != 100 {
				t.Errorf("%d events came", len(body))
			}
		})
	})
	t.Run("a hijacked connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				hijacker, _ := w.(http.Hijacker)
				conn, _, err := hijacker.Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				go func() {
					time.Sleep(time.Hour) // of the bubble
					_, _ = io.WriteString(conn, "late")
					_ = conn.Close()
				}()
			})
			c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if b, err := io.ReadAll(c.in); string(b) != "late" || err != nil {
				t.Errorf("%q came, %v", b, err)
			}
		})
	})
}
