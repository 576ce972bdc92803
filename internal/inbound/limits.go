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
	// TrustedProxies are exempt from PerAddress: they speak for many addresses.
	TrustedProxies []netip.Prefix
}

const (
	// maxUnauthenticated is the default limit, at some 10 KiB each.
	maxUnauthenticated = 8192
	// minConnections is the minimum, however few open files are allowed.
	minConnections = 32
	// unknownFiles is assumed if the limit of open files cannot be read.
	unknownFiles = 1 << 16
)

// LimitsFor returns limits for a process with a limit of open files, some of them
// reserved for other uses. If unauthenticated is 0, a third of the rest may be
// unauthenticated. One address may hold three quarters of those.
func LimitsFor(files, reserved, unauthenticated int, trusted []netip.Prefix) Limits {
	l := Limits{Connections: max(files-reserved, minConnections), TrustedProxies: trusted}
	l.Unauthenticated = min(l.Connections/3, maxUnauthenticated)
	if unauthenticated > 0 {
		l.Unauthenticated = min(unauthenticated, l.Connections-1)
	}
	l.PerAddress = max(1, l.Unauthenticated*3/4)
	return l
}

// Authenticated is how many connections are always left for authenticated
// clients.
func (l Limits) Authenticated() int { return l.Connections - l.Unauthenticated }
