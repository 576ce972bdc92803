package gateway

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// addressOf returns where a request comes from: the peer, or whom trusted
// proxies say that they speak for. ok is false where there is no address, such
// as on a Unix socket.
func addressOf(r *http.Request, trusted []netip.Prefix) (address netip.Addr, ok bool) {
	address, ok = parseAddress(r.RemoteAddr)
	// Each proxy adds whom it heard at the end. What stands before the last one
	// that is not trusted anybody can have written.
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

// networkOf returns those addresses that count as one client: of IPv6 the 64
// bits that one household is given.
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
