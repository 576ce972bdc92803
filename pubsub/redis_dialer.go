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

// redisDialer returns a dialer for go-redis. It changes the given dialer in three ways: a
// [redisLink] can dial only once, its connection is closed when the link ends, and the pool of
// other connections gets a failedConn instead of an error.
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

// failedConn is a pooled connection to a server that cannot be reached. Its first use returns
// the error of the dial.
//
// It is used since a pool of go-redis writes each failed dial to standard error and, after some
// tens of failures, refuses to dial for up to a second. If Redis is available again within that
// second, the subscriptions could reconnect and report the gap while publishing still fails.
// Updates would then be lost after the gap was reported.
type failedConn struct {
	net.Conn
	err error
}

func (c failedConn) Read([]byte) (int, error)  { return 0, c.err }
func (c failedConn) Write([]byte) (int, error) { return 0, c.err }
