package inbound

import "net/netip"

// Limits bounds the connections of a Listener. Zero fields have no limit.
type Limits struct {
	// Connections is the maximum number of open connections.
	Connections int
	// Unauthenticated is the maximum number of unauthenticated connections. When one more is
	// opened, the oldest unauthenticated connection is closed.
	Unauthenticated int
	// PerAddress is the maximum number of unauthenticated connections from one address (IPv6: one
	// /64).
	PerAddress int
	// Users and Keys limit the authenticated connections that carry requests: Users limits the
	// connections for requests with tokens of users, Keys for requests with keys.
	Users, Keys ShareLimits
	// TrustedProxies are exempt from PerAddress, Users and Keys, since a proxy serves many
	// clients.
	TrustedProxies []netip.Prefix
}

const (
	// maxUnauthenticated is the highest default of Limits.Unauthenticated. An unauthenticated
	// connection uses about 10 KiB of memory.
	maxUnauthenticated = 8192
	// MinConnections is the minimum of Limits.Connections that LimitsFor returns.
	MinConnections = 32
	// minKnown is the number of connections reserved for authenticated clients.
	minKnown = 16
	// connectionsOfUser is the maximum number of connections for requests of one user. It is enough
	// for four browsers, since a browser opens up to six connections.
	connectionsOfUser = 24
	// unknownFiles is the assumed limit of open files if the limit cannot be read.
	unknownFiles = 1 << 16
)

// LimitsFor returns the limits for a process that may open `files` files. It reserves
// `reserved` files for other uses; the remaining files are for connections. The limit of
// unauthenticated connections is `unauthenticated`, but at least 16 connections remain for
// authenticated clients. If `unauthenticated` is 0, the limit is a third of all connections, and
// at most 8,192. One address may use three quarters of the limit.
//
// Of the authenticated connections, an eighth is for requests with keys, and an eighth is for
// requests with tokens. One key may use three quarters of the eighth for keys, and one address
// may use this whole eighth. One address or one user may use three quarters of the eighth for
// tokens, and one user at most 24 connections.
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

// Streams returns the number of connections that are reserved for WebSockets and event streams
// of authenticated clients.
func (l Limits) Streams() int {
	return l.Connections - l.Unauthenticated - l.Users.All - l.Keys.All
}
