package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/websocket"
)

// bearerProtocol is the prefix of the subprotocol that carries a browser's token:
// browsers cannot set headers.
const bearerProtocol = "bearer."

// webSocketVersion is that of RFC 6455.
const webSocketVersion = "13"

// ServeHTTP upgrades a request to a WebSocket. A bad token or subprotocol is
// reported with a close code after the upgrade: browsers hide HTTP statuses from
// scripts.
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
	switch {
	case speaksProtocol:
		// A constant: a substring of the request would keep all of its headers,
		// token included, in memory as long as the connection lasts.
		chosen = http.Header{"Sec-Websocket-Protocol": {Protocol}}
	case len(protocols) > 0:
		// A client fails a handshake without one of its protocols, and would not
		// see the close code.
		chosen = http.Header{"Sec-Websocket-Protocol": {protocols[0]}}
	}
	conn, err := g.upgrader.Upgrade(g.meter(w), r, chosen)
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
	// The handler returns, because net/http holds more memory for a request than
	// the rest of a session takes.
	go k.read(tokenOf(r, protocols), speaksProtocol) //nolint:contextcheck // the session outlives its request
}

// tokenOf returns the token of a request, or "": the hello may carry it.
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

// bearerOf returns the token in the Authorization header, or "".
func bearerOf(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
