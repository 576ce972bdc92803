package pubsub

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/badged/badged/internal/resp"
)

const defaultDialTimeout = 5 * time.Second

// newRedisDialer returns a dialer for go-redis. Unlike the default, its TLS
// handshake heeds the context, the connection of a [redisLink] ends with the
// link, and the pool gets a failure as a failedConn.
func newRedisDialer(timeout time.Duration, config *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	if timeout == 0 {
		timeout = defaultDialTimeout
	}
	dial := resp.Dialer(timeout, config)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if link := linkOf(ctx); link != nil {
			return link.dial(func() (net.Conn, error) { return dial(ctx, network, addr) })
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return failedConn{err: err, addr: failedAddr{network: network, addr: addr}}, nil
		}
		return conn, nil
	}
}

// failedConn is a pooled connection to a server that cannot be reached: its
// first use returns the error of the dial.
//
// When dials fail, a pool of go-redis writes each failure to standard error,
// and after some tens of them refuses to dial for up to a second. In that
// second Redis may come back and the subscriptions may join again: they would
// report the gap before the last update is lost.
type failedConn struct {
	err  error
	addr failedAddr
}

func (c failedConn) Read([]byte) (int, error)         { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)        { return 0, c.err }
func (c failedConn) Close() error                     { return nil }
func (c failedConn) LocalAddr() net.Addr              { return c.addr }
func (c failedConn) RemoteAddr() net.Addr             { return c.addr }
func (c failedConn) SetDeadline(time.Time) error      { return nil }
func (c failedConn) SetReadDeadline(time.Time) error  { return nil }
func (c failedConn) SetWriteDeadline(time.Time) error { return nil }

// failedAddr is the address that was dialed.
type failedAddr struct{ network, addr string }

func (a failedAddr) Network() string { return a.network }
func (a failedAddr) String() string  { return a.addr }
