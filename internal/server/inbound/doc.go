// Package inbound limits client connections: their number (in particular the number of
// unauthenticated connections), the time in which a request must arrive, the time in which the
// client must read the answer, and the memory for request bodies. It also loads the TLS
// certificate.
//
// It does not know keys, tokens or routes: handlers report when a connection is authenticated.
// ADR 44 has the reasons.
package inbound
