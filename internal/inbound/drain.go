package inbound

import (
	"errors"
	"io"
	"net"
	"time"
)

const (
	// maxDrain is how much of the rest of a request is read after its answer, at most for
	// Grace. More than any request may have.
	maxDrain = 16 << 20
	// drainStep is how much of it must arrive within linger.
	drainStep = 64 << 10
)

// CloseWrite ends the answers on the connection. The server calls it before it closes one
// with an unread body. Many clients send all of the body before they read, and would miss
// the answer if the connection were reset: CloseWrite reads the rest.
func (c *conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	err := half.CloseWrite()
	drain(c.Conn)
	return err
}

// drain reads what a client still sends, as far as that comes quickly.
func drain(c net.Conn) {
	until := time.Now().Add(Grace)
	for left := int64(maxDrain); left > 0; {
		next := time.Now().Add(linger)
		if next.After(until) {
			next = until
		}
		if c.SetReadDeadline(next) != nil {
			return
		}
		n, err := io.CopyN(io.Discard, c, min(left, drainStep))
		if left -= n; err != nil {
			return
		}
	}
}
