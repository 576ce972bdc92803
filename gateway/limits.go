package gateway

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"time"

	"github.com/badged/badged/gateway/internal/limit"
)

// Limits bound what clients may do; 0 is no limit. Rates are per second, and allow
// bursts of ten seconds' worth.
type Limits struct {
	// Connections is the most open connections, counted from an accepted hello.
	Connections int
	// UserConnections is the most open connections of one user.
	UserConnections int
	// Connects is the rate of new connections from one client; see ClientOf.
	Connects float64
	// Commands is the rate of commands of one user, over all connections to this
	// gateway and over HTTP.
	Commands float64
	// TrustedProxies are the proxies whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
}

// ClientOf returns the network that a request comes from, which counts as one
// client: an IPv4 address, or the /64 of an IPv6 address, the size that one
// household gets. It is that of the peer, or of the client that trusted proxies
// name in X-Forwarded-For. ok is false if there is no address, as on a Unix socket.
func ClientOf(r *http.Request, trusted []netip.Prefix) (client netip.Prefix, ok bool) {
	return limit.Client(r, trusted)
}

// signsPerSecond is the rate of pings and pongs that a client may send. One that
// checks its connection often pings every few seconds.
const signsPerSecond = 10

// maxFrameHeader is the most that a frame of a client has before its payload.
const maxFrameHeader = 14

// metered limits the bytes that a client sends to those of the largest frames that
// it may send. Without a limit of commands there is none.
func (g *Gateway) metered(w http.ResponseWriter) http.ResponseWriter {
	perSecond := g.cfg.Limits.Commands
	if perSecond <= 0 {
		return w
	}
	return limit.Metered(w, (perSecond+signsPerSecond)*(MaxFrameBytes+maxFrameHeader))
}

// The shortest and longest time after which clients come back when there is no
// room.
const (
	minRoomWait = 5 * time.Second
	maxRoomWait = 30 * time.Second
)

// noRoom refuses a connection over a limit. The client comes back at a random time,
// but not before atLeast.
func noRoom(code int, reason string, atLeast time.Duration) *closing {
	atLeast = cmp.Or(atLeast, minRoomWait)
	return &closing{
		code: code, reason: reason,
		reconnect: atLeast + rand.N(max(maxRoomWait-atLeast, time.Second)), //nolint:gosec // spreads load, guards nothing
	}
}
