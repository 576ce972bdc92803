//go:build unix

package pgsession

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// readable reports whether a read from conn would return at once, with data, an error or the end
// of the stream.
func readable(conn net.Conn) bool {
	if tls, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tls.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	var peeked error
	// Do not use raw.Read: it would wait for other reads of the connection, and after a slow write
	// pgx still has a read in progress.
	err = raw.Control(func(fd uintptr) {
		_, _, peeked = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return err != nil || !errors.Is(peeked, unix.EAGAIN) && !errors.Is(peeked, unix.EINTR)
}
