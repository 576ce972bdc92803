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

// redisDialer returns a dialer for go-redis, based on the given dialer, with three differences:
// a [redisLink] can dial only once; the connection of a link is closed when the link ends; and
// if a dial for go-redis's pool of connections fails, the pool gets a failedConn instead of an
// error.
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
// Without failedConn, a pool of go-redis would write each failed dial to standard error and, after
// some tens of failures, refuse to dial for up to a second. If Redis became available in that
// second, subscriptions could reconnect and report a gap while publishing still fails. Updates
// would then be lost after the report, and no gap would be reported for them.
type failedConn struct {
	net.Conn
	err error
}

func (c failedConn) Read([]byte) (int, error)  { return 0, c.err }
func (c failedConn) Write([]byte) (int, error) { return 0, c.err }
