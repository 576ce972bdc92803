// Package inbound limits connections: how many unauthenticated clients may hold,
// and how long a request may take to arrive and its answer to be read. It also has
// their TLS certificate.
//
// It does not know keys, tokens or routes: handlers say when a connection is
// authenticated. ADR 44 has the reasons.
package inbound
