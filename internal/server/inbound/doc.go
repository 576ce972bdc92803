// Package inbound limits connections: their number, above all the number of unauthenticated
// connections, and the time that a request may take to arrive and its answer to be read. It
// also loads the TLS certificate.
//
// It does not know keys, tokens or routes: handlers report when a connection is authenticated.
// ADR 44 has the reasons.
package inbound
