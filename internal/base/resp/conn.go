// Package resp opens clients of Redis that limit the sizes in the answers of the server. go-redis
// allocates the elements that an answer announces before the elements have arrived. So a single
// line of a broken server, or of a server that is not Redis, could exhaust the memory of the
// process.
//
// The package does not know which commands are sent.
package resp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

// Limits of the sizes that an answer may announce. Redis itself sends no text that is longer than
// maxText bytes.
const (
	maxText     = 512 << 20
	maxElements = 1 << 20 // in one answer, including nested elements
	maxDepth    = 32
)

// errNotRESP means that a line of the server is not valid in RESP2.
var errNotRESP = errors.New("the server's answer is not one of RESP2: is it Redis?")

// Dial connects to a server.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns a dialer for go-redis clients that use version 2 of the protocol. Reading from its
// connections returns an error if an answer is not RESP2, or if it announces more than the limits
// allow.
func dialer(timeout time.Duration, config *tls.Config) Dial {
	plain := &net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	dial := plain.DialContext
	if config != nil {
		dial = (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if raw, ok := c.(syscall.Conn); ok {
			return rawConn{&conn{Conn: c}, raw}, nil
		}
		return &conn{Conn: c}, nil
	}
}

// conn is a connection that returns an error when an answer exceeds the limits.
type conn struct {
	net.Conn
	answers answers
	err     error
}

// rawConn is a conn that also implements syscall.Conn, which go-redis uses to check idle
// connections.
type rawConn struct {
	*conn
	syscall.Conn
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.Conn.Read(p)
	if c.err = c.answers.follow(p[:n]); c.err != nil {
		return 0, c.err
	}
	return n, err
}

// answers parses the answers of a server. An answer consists of lines; a text follows the line that
// announces the length of the text.
type answers struct {
	// line is the beginning of the current line. It is long enough to contain any length.
	line []byte
	// text is the number of bytes of the current text, including its CRLF, that have not arrived
	// yet.
	text int64
	// parts has, for each incomplete array, the number of elements that have not arrived yet. The
	// innermost array is last. elements is the number of elements that the current answer has
	// announced so far.
	parts    []int64
	elements int64
}

// follow parses the next bytes from the server.
func (a *answers) follow(b []byte) error {
	for len(b) > 0 {
		if a.text > 0 {
			n := min(a.text, int64(len(b)))
			if a.text, b = a.text-n, b[n:]; a.text == 0 {
				a.done()
			}
			continue
		}
		end := bytes.IndexByte(b, '\n')
		part := b
		if end >= 0 {
			part = b[:end]
		}
		const longest = 32
		a.line = append(a.line, part[:min(len(part), max(0, longest-len(a.line)))]...)
		if end < 0 {
			return nil
		}
		if err := a.header(bytes.TrimSuffix(a.line, []byte("\r"))); err != nil {
			return err
		}
		a.line, b = a.line[:0], b[end+1:]
	}
	return nil
}

// header parses a line, which may announce a text or an array.
func (a *answers) header(line []byte) error {
	if len(line) == 0 {
		return errNotRESP
	}
	switch line[0] {
	case '+', '-', ':':
		a.done()
		return nil
	case '$', '*':
	default:
		return errNotRESP
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	array := line[0] == '*'
	switch {
	case err != nil || n > maxText || array && (a.elements+n > maxElements || len(a.parts) == maxDepth):
		return fmt.Errorf("the server's answer announces more than Redis sends, %q: is it Redis?", line)
	case !array && n >= 0:
		a.text = n + int64(len("\r\n"))
	case n <= 0:
		a.done()
	default:
		a.elements += n
		a.parts = append(a.parts, n)
	}
	return nil
}

// done is called at the end of an element. If it was the last element of an array, done also ends
// the array.
func (a *answers) done() {
	for len(a.parts) > 0 {
		last := len(a.parts) - 1
		if a.parts[last]--; a.parts[last] > 0 {
			return
		}
		a.parts = a.parts[:last]
	}
	a.elements = 0
}
