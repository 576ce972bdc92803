package inbound

import "net/netip"

// Limits bounds the connections of a Listener. Zero fields have no limit.
type Limits struct {
	// Connections is the most open connections.
	Connections int
	// Unauthenticated is the most unauthenticated connections. A further one closes the
	// oldest.
	Unauthenticated int
	// PerAddress is the most unauthenticated connections from one address (IPv6: one /64).
	PerAddress int
	// Users and Keys bound the authenticated connections that carry requests: Users bounds
	// connections for requests with tokens, Keys connections for requests with keys.
	Users, Keys ShareLimits
	// TrustedProxies are exempt from PerAddress, Users and Keys, since they serve many
	// clients.
	TrustedProxies []netip.Prefix
}

const (
	// maxUnauthenticated is the highest default, at some 10 KiB each.
	maxUnauthenticated = 8192
	// MinConnections is the fewest connections with which a process can serve.
	MinConnections = 32
	// minKnown is the number of connections reserved for authenticated clients.
	minKnown = 16
	// connectionsOfUser is the most connections for requests of one user: several browsers,
	// each of which opens six.
	connectionsOfUser = 24
	// unknownFiles is assumed if the limit of open files cannot be read.
	unknownFiles = 1 << 16
)

// LimitsFor returns limits for a process with a limit of open files, of which `reserved` are
// for other uses. If unauthenticated is 0, a third of the other files is for unauthenticated
// clients. Of the files that then remain, an eighth is for requests with keys and an eighth
// for requests with tokens. One address or one key gets at most three quarters of its part,
// with one exception: one address may use the whole part of the keys.
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

// Streams is the number of connections that are always available to WebSockets and streams of
// authenticated clients.
func (l Limits) Streams() int {
	return l.Connections - l.Unauthenticated - l.Users.All - l.Keys.All
}
