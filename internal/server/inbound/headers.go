package inbound

import (
	"errors"
	"io"
	"net"
	"time"
)

const (
	// strangerHeader and strangerLines limit the header of a request on an unauthenticated
	// connection, in bytes and in lines. The number of lines is limited since the server uses
	// some hundred bytes of memory for each line of a header.
	strangerHeader = 32 << 10
	strangerLines  = 128
)

// headerAnswer answers a request whose header is too large.
const headerAnswer = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"the header of a request without a known key or token may have 32 KiB and 128 lines\n"

// header counts the bytes and lines of a request header while it is read.
type header struct {
	bytes, lines int
	// blank is true while the current line has no characters yet. ended is true after the empty
	// line that ends the header.
	blank, ended bool
}

// add counts the bytes of p up to the empty line that ends the header; the rest of p belongs to
// the body. It reports whether the header exceeds the limits for unauthenticated connections.
func (h *header) add(p []byte) bool {
	for i := 0; i < len(p) && !h.ended; i++ {
		h.bytes++
		switch p[i] {
		case '\n':
			h.lines++
			h.ended, h.blank = h.blank, true
		case '\r':
		default:
			h.blank = false
		}
	}
	return h.bytes > strangerHeader || h.lines > strangerLines
}

// refuseHeader answers a request whose header is too large. It then reads and discards more of
// the request, so that TCP does not reset the connection before the client gets the answer. It
// returns an error with which the server closes the connection without another answer.
func (c *conn) refuseHeader() error {
	_ = c.SetWriteDeadline(time.Now().Add(linger)) // fails only if the connection is closed
	_, _ = io.WriteString(c.Conn, headerAnswer)
	drain(c.Conn)
	return &net.OpError{Op: "read", Net: "tcp", Err: errors.New("the header is too large")}
}
