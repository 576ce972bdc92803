package inbound

import "net/netip"

// Limits bounds the connections of a Listener. Zero fields have no limit.
type Limits struct {
	// Connections is the most open connections.
	Connections int
	// Unauthenticated is the most unauthenticated connections. If there is one more, the oldest
	// is closed.
	Unauthenticated int
	// PerAddress is the most unauthenticated connections from one address (IPv6: one /64).
	PerAddress int
	// Users and Keys limit the authenticated connections that carry requests: Users limits the
	// connections for requests with tokens of users, Keys for requests with keys.
	Users, Keys ShareLimits
	// TrustedProxies are exempt from PerAddress, Users and Keys, since a proxy serves many
	// clients.
	TrustedProxies []netip.Prefix
}

const (
	// maxUnauthenticated is the highest default of Limits.Unauthenticated. Such a connection
	// takes about 10 KiB of memory.
	maxUnauthenticated = 8192
	// MinConnections is the fewest connections with which a process can serve.
	MinConnections = 32
	// minKnown is the number of connections reserved for authenticated clients.
	minKnown = 16
	// connectionsOfUser is the most connections for requests of one user. It is enough for
	// several browsers, each of which opens six.
	connectionsOfUser = 24
	// unknownFiles is the assumed limit of open files if the limit cannot be read.
	unknownFiles = 1 << 16
)

// LimitsFor returns limits for a process that may open a number of files, of which `reserved`
// are for other uses. The other files are for connections. At most `unauthenticated`
// connections may be unauthenticated; if it is 0, a third of all connections, but at most
// 8,192.
//
// Of the remaining connections, an eighth is for requests with keys, and an eighth for requests
// with tokens. One key, or one address with tokens, gets at most three quarters of its eighth.
// One user gets at most as many, and at most 24. One address with keys may use the whole
// eighth.
func LimitsFor(files, reserved, unauthenticated int, trusted []netip.Prefix) Limits {
	l := Limits{Connections: max(files-reserved, MinConnections), TrustedProxies: trusted}
	l.Unauthenticated = min(l.Connections/3, maxUnauthenticated)
	if unauthenticated > 0 {
		l.Unauthenticated = min(unauthenticated, l.Connections-minKnown)
	}
	l.PerAddress = max(1, l.Unauthenticated*3/4)
	known := (l.Connections - l.Unauthenticated) / 8
	l.Keys = ShareLimits{All: known, PerHolder: max(1, known*3/4), PerAddress: known}
	l.Users = ShareLimits{All: known, PerHolder: min(connectionsOfUser, max(1, known*3/4)), PerAddress: max(1, known*3/4)}
	return l
}

// Streams is the number of connections that only WebSockets and streams of authenticated
// clients can use.
func (l Limits) Streams() int {
	return l.Connections - l.Unauthenticated - l.Users.All - l.Keys.All
}
