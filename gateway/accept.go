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

// webSocketVersion is that of RFC 6455.
const webSocketVersion = "13"

// ServeHTTP upgrades a request to a WebSocket. What is wrong with the token or
// the subprotocol is said with a close code rather than an HTTP status, since
// browsers show scripts nothing of the latter.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !websocket.IsWebSocketUpgrade(r) || r.Header.Get("Sec-WebSocket-Version") != webSocketVersion {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Sec-WebSocket-Version", webSocketVersion)
		http.Error(w, "this is a WebSocket endpoint: connect with a WebSocket client and the subprotocol "+Protocol, http.StatusUpgradeRequired)
		return
	}
	protocols := websocket.Subprotocols(r)
	speaksProtocol := slices.Contains(protocols, Protocol)
	var chosen http.Header
	if speaksProtocol {
		// Our own string: a part of the request's would keep all of it, and the
		// token beside it, for as long as the connection lasts.
		chosen = http.Header{"Sec-Websocket-Protocol": {Protocol}}
	}
	conn, err := g.upgrader.Upgrade(w, r, chosen)
	if err != nil { // the upgrader has answered
		g.metrics.refused.Inc()
		g.log.DebugContext(r.Context(), "upgrade refused", "remote", r.RemoteAddr, "error", err)
		return
	}
	s := newSession(g)
	k := newSocket(s, conn)
	s.link = k
	refusal := g.meet(r)
	if refusal == nil {
		refusal = g.admit(s, 2)
	}
	if refusal != nil {
		k.refuse(*refusal)
		return
	}
	s.begin()
	// The handler returns: what net/http holds for a request is worth more
	// than the rest of a session together.
	go k.read(tokenOf(r, protocols), speaksProtocol)
}

// tokenOf returns the token of a request, "" where it is still to come.
func tokenOf(r *http.Request, protocols []string) string {
	if token := bearerOf(r); token != "" {
		return token
	}
	for _, p := range protocols {
		if token, ok := strings.CutPrefix(p, bearerProtocol); ok {
			return token
		}
	}
	return ""
}

// bearerOf returns the token in the header of a request, "" where there is none.
func bearerOf(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
