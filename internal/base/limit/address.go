package limit

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Client returns the network that a request comes from: the network of the peer, or of the
// client that trusted proxies name in X-Forwarded-For. A network counts as one client. It is
// an IPv4 address, or the /64 of an IPv6 address, the range that one household gets. ok is
// false if there is no address, as on a Unix socket.
func Client(r *http.Request, trusted []netip.Prefix) (client netip.Prefix, ok bool) {
	address, ok := addressOf(r, trusted)
	if !ok {
		return netip.Prefix{}, false
	}
	return networkOf(address), true
}

// NetworkOf returns the network of a peer; see Client. ok is false for trusted proxies, since
// they forward requests of many clients, and for a peer without an address.
func NetworkOf(peer string, trusted []netip.Prefix) (network netip.Prefix, ok bool) {
	address, ok := parseAddress(peer)
	if !ok || isTrusted(address, trusted) {
		return netip.Prefix{}, false
	}
	return networkOf(address), true
}

// addressOf returns the address that a request comes from; see Client.
func addressOf(r *http.Request, trusted []netip.Prefix) (address netip.Addr, ok bool) {
	address, ok = parseAddress(r.RemoteAddr)
	// Each proxy appends its peer. Anything before the last untrusted address may
	// be forged.
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(forwarded) {
		if !ok || !isTrusted(address, trusted) {
			break
		}
		before, isAddress := parseAddress(strings.TrimSpace(hop))
		if !isAddress {
			break
		}
		address = before
	}
	return address, ok
}

func isTrusted(a netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// parseAddress reads an address with or without a port.
func parseAddress(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return a.Unmap().WithZone(""), err == nil
}

// networkOf returns the network that counts as one client; see Client.
func networkOf(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil { // never with as many bits
		return netip.PrefixFrom(a, a.BitLen())
	}
	return p
}
