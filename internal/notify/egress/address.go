package egress

import (
	"net/netip"
	"slices"
)

// block is a range of addresses, with its name for errors.
type block struct {
	prefix netip.Prefix
	name   string
}

// Names of blocks as they appear in errors.
const (
	metadata  = "cloud metadata"
	linkLocal = "a link-local network"
	multicast = "a multicast group"
	special   = "a range that is not for public hosts"
	private   = "a private network"
	loopback  = "this machine"
)

// never lists ranges to which a client must never connect, even with Config.AllowPrivate. No
// receiver of calls has an address in these ranges. Some of these addresses belong to the metadata
// services of clouds, which return credentials.
var never = slices.Concat(
	blocks(metadata, "169.254.169.254/32", "169.254.170.0/24", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::254/128"),
	blocks(linkLocal, "169.254.0.0/16", "fe80::/10"),
	blocks(multicast, "224.0.0.0/4", "ff00::/8"),
	blocks(special, "0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"::/128", "64:ff9b:1::/48", "2001::/23", "2001:db8::/32", "3fff::/20"),
)

// inside lists ranges of private networks and of this machine. A client connects to them only
// with Config.AllowPrivate.
var inside = slices.Concat(
	blocks(loopback, "127.0.0.0/8", "::1/128"),
	blocks(private, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7"),
)

// embedding lists IPv6 ranges whose addresses contain an IPv4 address. offset is the index of the
// first byte of the IPv4 address.
var embedding = []struct {
	prefix netip.Prefix
	offset int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("::/96"), 12},        // IPv4-compatible
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
}

// globalUnicast is the range of all public IPv6 hosts.
var globalUnicast = netip.MustParsePrefix("2000::/3")

func blocks(name string, prefixes ...string) []block {
	all := make([]block, len(prefixes))
	for i, prefix := range prefixes {
		all[i] = block{netip.MustParsePrefix(prefix), name}
	}
	return all
}

// refusal returns "" if a client may connect to an address. Otherwise it returns a name for the
// range of the address, such as "a private network".
func refusal(addr netip.Addr, allowPrivate bool) string {
	addr = addr.WithZone("").Unmap() // Prefix.Contains is false for an address with a zone
	for _, b := range never {
		if b.prefix.Contains(addr) {
			return b.name
		}
	}
	for _, b := range inside {
		if b.prefix.Contains(addr) {
			if allowPrivate {
				return ""
			}
			return b.name
		}
	}
	if addr.Is4() {
		return ""
	}
	for _, e := range embedding {
		if e.prefix.Contains(addr) {
			bytes := addr.As16()
			return refusal(netip.AddrFrom4([4]byte(bytes[e.offset:])), allowPrivate)
		}
	}
	if !globalUnicast.Contains(addr) {
		return special
	}
	return ""
}
