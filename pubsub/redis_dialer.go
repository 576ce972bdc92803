package pubsub

import (
	"context"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/base/resp"
)

// openRedis returns a client for the servers of rawURL. It does not connect.
func openRedis(rawURL string) (redis.UniversalClient, error) {
	open, err := resp.Opener(rawURL, resp.Config{NoRetries: true, Dial: redisDialer})
	if err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	return open(), nil
}

// redisDialer returns a dialer for go-redis. It differs from the default in two ways: the
// connection of a [redisLink] is closed when the link ends, and the pool gets a failedConn in
// place of an error.
func redisDialer(dial resp.Dial) resp.Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		link, _ := ctx.Value(redisLinkKey{}).(*redisLink)
		if link != nil && link.established.Load() {
			return nil, errLinkEnded
		}
		conn, err := dial(ctx, network, addr)
		switch {
		case link == nil && err != nil:
			nowhere, _ := net.Pipe()
			return failedConn{nowhere, err}, nil
		case link != nil && err == nil:
			context.AfterFunc(link.ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}
}

// failedConn is a pooled connection to a server that cannot be reached: its first use returns
// the error of the dial.
//
// When dials fail, a pool of go-redis writes each failure to standard error, and after some
// tens of failures refuses to dial for up to a second. Redis may come back within that second,
// and the subscriptions may join again while publishing still fails. They would then report
// the gap before the last update is lost.
type failedConn struct {
	net.Conn
	err error
}

func (c failedConn) Read([]byte) (int, error)  { return 0, c.err }
func (c failedConn) Write([]byte) (int, error) { return 0, c.err }
