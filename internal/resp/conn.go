// Package resp bounds what a client of Redis takes from a server. go-redis allocates as many
// elements as an answer announces, before any of them arrives: a broken or false server
// could end the process with one line.
//
// It does not know which commands are sent.
package resp

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

// The most that an answer may announce. Redis itself sends no texts above maxText.
const (
	maxText     = 512 << 20
	maxElements = 1 << 20 // of one answer, with those of its parts
	maxDepth    = 32
)

// Dialer returns a dialer for go-redis whose connections end with an error at an answer
// that announces more than the bounds.
func Dialer(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	if config != nil {
		secure := &tls.Dialer{NetDialer: plain, Config: config}
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := secure.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: c}, nil
		}
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := plain.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if raw, ok := c.(syscall.Conn); ok {
			return rawConn{&conn{Conn: c}, raw}, nil
		}
		return &conn{Conn: c}, nil
	}
}

// conn reads answers within the bounds.
type conn struct {
	net.Conn
	answers answers
	err     error
}

// rawConn is a connection that go-redis can look at while it is idle.
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

// answers follows the answers of a server: their lines, and the texts behind lines.
type answers struct {
	// line is the beginning of the line that is being read, enough for a length.
	line []byte
	// text is how many bytes of a text are to come, with its end.
	text int64
	// parts are how many elements are to come of each part of the answer, the innermost
	// last, and elements how many the answer has announced.
	parts    []int64
	elements int64
}

// follow takes the next bytes.
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

// header takes a line.
func (a *answers) header(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	var each int64 // elements for each that is announced; 0 for a text
	switch line[0] {
	case '$', '!', '=':
	case '*', '~', '>':
		each = 1
	case '%', '|':
		each = 2
	default:
		a.done()
		return nil
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	switch {
	case err != nil || n > maxText || each > 0 && (n > maxElements || a.elements+n*each > maxElements || len(a.parts) == maxDepth):
		return fmt.Errorf("the server's answer announces more than Redis sends, %q: is it Redis?", line)
	case each == 0 && n >= 0:
		a.text = n + int64(len("\r\n"))
	case n <= 0:
		a.done()
	default:
		a.elements += n * each
		if a.parts = append(a.parts, n*each); line[0] == '|' {
			a.parts[len(a.parts)-1]++ // an attribute is no element: the one that it is about follows
		}
	}
	return nil
}

// done ends an element, and the parts that it was the last of.
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
