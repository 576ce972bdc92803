package inbound

import "net/netip"

// Limits bounds the connections of a Listener. Zero fields have no limit.
type Limits struct {
	// Connections is how many may be open at once.
	Connections int
	// Unauthenticated is how many of them may be unauthenticated. One more closes
	// the oldest.
	Unauthenticated int
	// PerAddress is how many of those one address (IPv6: one /64) may hold.
	PerAddress int
	// Users and Keys bound the authenticated connections that carry requests.
	Users, Keys ShareLimits
	// TrustedProxies are exempt from PerAddress, Users and Keys: they speak for many.
	TrustedProxies []netip.Prefix
}

const (
	// maxUnauthenticated is the default limit, at some 10 KiB each.
	maxUnauthenticated = 8192
	// MinConnections is the minimum: with fewer a process cannot serve.
	MinConnections = 32
	// minKnown is how many connections of authenticated clients there are at least.
	minKnown = 16
	// connectionsOfUser is how many connections for requests one user may have: several
	// browsers, each of which opens six.
	connectionsOfUser = 24
	// unknownFiles is assumed if the limit of open files cannot be read.
	unknownFiles = 1 << 16
)

// LimitsFor returns limits for a process with a limit of open files, some of them
// reserved for other uses. If unauthenticated is 0, a third of the rest may be
// unauthenticated. Of what then remains, an eighth is for requests of keys and an eighth for
// those of users. One address may hold three quarters of each, and so may one key.
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

// Streams is how many connections are always left for WebSockets and streams of
// authenticated clients.
func (l Limits) Streams() int {
	return l.Connections - l.Unauthenticated - l.Users.All - l.Keys.All
}
