// Package inbound limits connections: how many unauthenticated clients may hold,
// and how long a request may take to arrive and its answer to be read. It also has
// their TLS certificate.
package inbound
