// Package inbound limits connections. It limits their number, above all the number of
// unauthenticated connections, and the time that requests may take to arrive and answers to be
// read. It also loads the TLS certificate.
//
// It does not know keys, tokens or routes: handlers report when a connection is authenticated.
// ADR 44 has the reasons.
package inbound
