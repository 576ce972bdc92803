//go:build !unix

package pgsession

import "net"

func readable(net.Conn) bool { return false }
