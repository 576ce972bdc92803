package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATSTimeout bounds each connection attempt and each request to a NATS server.
const NATSTimeout = 5 * time.Second

// NATS returns the servers of a URL, and the options for a connection. `name` is the name of this
// client on the servers. NATS removes the parameters creds, tls and ca.
func NATS(a *Address, name string) (servers []string, options []nats.Option, err error) {
	for _, host := range a.Hosts {
		servers = append(servers, "nats://"+host)
	}
	options = []nats.Option{
		nats.Name(name), nats.Timeout(NATSTimeout), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
	}
	switch credentials := a.Take("creds"); {
	case credentials != "":
		if _, err := os.Stat(credentials); err != nil {
			return nil, nil, fmt.Errorf("creds: %w", err)
		}
		options = append(options, nats.UserCredentials(credentials))
	case a.HasPassword:
		options = append(options, nats.UserInfo(a.User, a.Password))
	case a.User != "":
		options = append(options, nats.Token(a.User))
	}
	encryption, err := a.TakeTLS()
	if err != nil {
		return nil, nil, err
	}
	if encryption != nil {
		options = append(options, nats.Secure(encryption))
	}
	return servers, options, nil
}

// NATSConn is a connection to JetStream that is opened on first use. It is safe for concurrent use.
type NATSConn struct {
	servers []string
	options []nats.Option

	mu   sync.Mutex
	conn *nats.Conn // nil before the first success
	js   jetstream.JetStream
}

// NewNATSConn returns a connection to servers, without connecting.
func NewNATSConn(servers []string, options []nats.Option) *NATSConn {
	return &NATSConn{servers: servers, options: options}
}

// Connect returns the connection. It connects first if necessary.
func (c *NATSConn) Connect() (jetstream.JetStream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.js != nil && !c.conn.IsClosed() { // the NATS client itself closes the connection if the server refuses its login twice
		return c.js, nil
	}
	conn, err := nats.Connect(strings.Join(c.servers, ","), c.options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", strings.Join(c.servers, ", "), err)
	}
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(NATSTimeout))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to JetStream: %w", err)
	}
	c.conn, c.js = conn, js
	return js, nil
}

// Close ends the connection.
func (c *NATSConn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
	}
}

// NATSStream returns the description of a stream. If the stream does not exist, the error says what
// to do.
func NATSStream(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	stream, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("there is no stream %s; create it", name)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("read the stream %s: JetStream is not enabled on the server or for this account: %w", name, err)
	case err != nil:
		return nil, fmt.Errorf("read the stream %s of NATS: %w", name, err)
	}
	return stream.CachedInfo(), nil
}
