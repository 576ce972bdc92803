package limit

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Client returns the network from which a request comes, which counts as one client. It takes the
// address of the peer or, if the peer is a trusted proxy, the address that the trusted proxies name
// in X-Forwarded-For. The network is this IPv4 address, or the /64 of this IPv6 address, which is
// the range of one household. ok is false if there is no address, as on a Unix socket.
func Client(r *http.Request, trusted []netip.Prefix) (client netip.Prefix, ok bool) {
	address, ok := addressOf(r, trusted)
	if !ok {
		return netip.Prefix{}, false
	}
	return networkOf(address), true
}

// NetworkOf returns the network of a peer: see Client. ok is false if the peer has no address, or
// if it is a trusted proxy, which forwards the requests of many clients.
func NetworkOf(peer string, trusted []netip.Prefix) (network netip.Prefix, ok bool) {
	address, ok := parseAddress(peer)
	if !ok || isTrusted(address, trusted) {
		return netip.Prefix{}, false
	}
	return networkOf(address), true
}

// addressOf returns the address from which a request comes: see Client.
func addressOf(r *http.Request, trusted []netip.Prefix) (address netip.Addr, ok bool) {
	address, ok = parseAddress(r.RemoteAddr)
	// Each proxy appends the address of its peer. So search from the end for the first address that
	// is not a trusted proxy. The client may have forged all addresses before it.
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

// parseAddress parses an address with or without a port.
func parseAddress(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return a.Unmap().WithZone(""), err == nil
}

// networkOf returns the network of an address, which counts as one client: see Client.
func networkOf(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil { // does not happen: the number of bits is valid
		return netip.PrefixFrom(a, a.BitLen())
	}
	return p
}
