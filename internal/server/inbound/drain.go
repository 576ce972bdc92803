package inbound

import (
	"errors"
	"io"
	"net"
	"time"
)

const (
	// maxDrain is the maximum number of bytes of a request that are read after the answer was sent.
	// No valid request is larger. The read takes at most Grace.
	maxDrain = 16 << 20
	// drainStep is the number of bytes that must arrive in each period of length linger. If
	// fewer bytes arrive, the read ends.
	drainStep = 64 << 10
)

// CloseWrite closes the sending direction of the connection, and reads the rest of the request.
// The server calls it before it closes a connection with an unread body. Many clients send the
// whole body before they read the answer. If the server closed the connection earlier, TCP
// would reset it, and such clients would not get the answer.
func (c *conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	err := half.CloseWrite()
	drain(c.Conn)
	return err
}

// drain reads and discards the data that a client still sends, as long as the client sends at
// least drainStep bytes in each period of length linger.
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
