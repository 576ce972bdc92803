package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/websocket"
)

// bearerProtocol is how a browser, which cannot set headers, passes its token:
// as a subprotocol that it offers beside the real one.
const bearerProtocol = "bearer."

// ServeHTTP upgrades a request to a WebSocket. What is wrong with the token or
// the subprotocol is said with a close code rather than an HTTP status, since
// browsers show scripts nothing of the latter.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !websocket.IsWebSocketUpgrade(r) {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "this is a WebSocket endpoint: connect with a WebSocket client and the subprotocol "+Protocol, http.StatusUpgradeRequired)
		return
	}
	conn, err := g.upgrader.Upgrade(w, r, nil)
	if err != nil { // the upgrader has answered
		g.metrics.refused.Inc()
		g.log.DebugContext(r.Context(), "upgrade refused", "remote", r.RemoteAddr, "error", err)
		return
	}
	s := newSession(g)
	k := newSocket(s, conn)
	s.link = k
	if !g.admit(s) {
		k.refuse(closing{code: CloseDraining, reason: "the server is going away", reconnect: g.cfg.ReconnectSpread})
		return
	}
	protocols := websocket.Subprotocols(r)
	token := tokenOf(r, protocols)
	// The handler returns: what net/http holds for a request is worth more
	// than the rest of a session together.
	go s.write()                                           //nolint:contextcheck // its own outlives the request's
	go k.read(token, slices.Contains(protocols, Protocol)) //nolint:contextcheck // as above
}

// tokenOf returns the token of a request, "" where it is still to come.
func tokenOf(r *http.Request, protocols []string) string {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	for _, p := range protocols {
		if token, ok := strings.CutPrefix(p, bearerProtocol); ok {
			return token
		}
	}
	return ""
}
