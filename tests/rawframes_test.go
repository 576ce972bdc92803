package tests

import (
	"bufio"
	"bytes"
	wire "encoding/binary" // binary is the program under test
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The first byte of a frame: flags and opcodes of RFC 6455.
const (
	fin  = 0x80
	rsv1 = 0x40
	rsv2 = 0x20
	rsv3 = 0x10

	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xA
)

// masked returns a frame as clients send it.
func masked(first byte, payload string) []byte {
	key := [4]byte{1, 2, 3, 4}
	b := append(frameHeader(first, 0x80, uint64(len(payload))), key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

// frameHeader returns the part of a frame before the mask.
func frameHeader(first, mask byte, length uint64) []byte {
	switch {
	case length < 126:
		return []byte{first, mask | byte(length)}
	case length <= 0xFFFF:
		return wire.BigEndian.AppendUint16([]byte{first, mask | 126}, uint16(length))
	default:
		return wire.BigEndian.AppendUint64([]byte{first, mask | 127}, length)
	}
}

// closing is the payload of a close frame.
func closing(code uint16, reason string) string {
	return string(wire.BigEndian.AppendUint16(nil, code)) + reason
}

// rawClient is a WebSocket client that sends and receives raw bytes.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// dialRaw opens a TCP connection to a server.
func dialRaw(t *testing.T, p *process) *rawClient {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &rawClient{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// handshake returns a WebSocket handshake with additional header lines.
func handshake(more ...string) string {
	return "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		strings.Join(append(more, "", ""), "\r\n")
}

const (
	wsKey      = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	wsVersion  = "Sec-WebSocket-Version: 13"
	wsProtocol = "Sec-WebSocket-Protocol: badge.v1"
)

func (c *rawClient) send(b []byte) {
	c.t.Helper()
	// The server need not read all of a request that it refuses.
	if _, err := c.conn.Write(b); err != nil {
		c.t.Logf("write: %v", err)
	}
}

// answer returns the server's answer to a request.
func (c *rawClient) answer() *http.Response {
	c.t.Helper()
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return res
}

// greet connects, says hello and reads the snapshot.
func (c *rawClient) greet(jwt string) {
	c.t.Helper()
	c.send([]byte(handshake(wsKey, wsVersion, wsProtocol, "Authorization: Bearer "+jwt)))
	res := c.answer()
	defer res.Body.Close()
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		c.t.Fatalf("the handshake was answered with %d %v", res.StatusCode, res.Header)
	}
	c.send(masked(fin|opText, `{"t":"hello"}`))
	c.awaitText("snapshot")
}

// next returns the next frame of the server.
func (c *rawClient) next() (op byte, payload []byte, err error) {
	var header [2]byte
	if _, err := io.ReadFull(c.in, header[:]); err != nil {
		return 0, nil, err
	}
	if header[0]&(rsv1|rsv2|rsv3) != 0 || header[1]&0x80 != 0 || header[0]&fin == 0 {
		c.t.Fatalf("the server sent a frame that begins with %x", header)
	}
	length := uint64(header[1])
	switch length {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(c.in, b[:])
		length = uint64(wire.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		_, err = io.ReadFull(c.in, b[:])
		length = wire.BigEndian.Uint64(b[:])
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, length)
	_, err = io.ReadFull(c.in, payload)
	return header[0] & 0xF, payload, err
}

// awaitText waits for a frame of a type.
func (c *rawClient) awaitText(typ string) {
	c.t.Helper()
	for {
		op, payload, err := c.next()
		if err != nil {
			c.t.Fatalf("awaiting %s: %v", typ, err)
		}
		var f frame
		if op == opText {
			if err := json.Unmarshal(payload, &f); err != nil {
				c.t.Fatal(err)
			}
		}
		if f.T == typ {
			return
		}
		if op == opClose {
			c.t.Fatalf("awaiting %s: the server closed with %s", typ, told(payload))
		}
	}
}

// awaitClose returns the server's close code, 1005 if there is none, and
// checks that the server ends the connection.
func (c *rawClient) awaitClose() int {
	c.t.Helper()
	code := 0
	for {
		op, payload, err := c.next()
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			c.t.Fatalf("the server did not end the connection; its close code was %d", code)
		case err != nil:
			return code
		case code != 0:
			c.t.Fatalf("after its close frame the server sent %x %q", op, payload)
		case op == opClose && len(payload) == 0:
			code = 1005
		case op == opClose:
			code = int(wire.BigEndian.Uint16(payload))
		}
	}
}

func told(payload []byte) string {
	if len(payload) < 2 {
		return "no code"
	}
	return fmt.Sprint(wire.BigEndian.Uint16(payload), " ", string(payload[2:]))
}

// A violation of the WebSocket protocol or of badge.v1 ends the connection with the right close code.
// The server keeps no connection or goroutine of it.
func TestProtocolViolations(t *testing.T) {
	t.Parallel()
	p := gatewayAlone(t)
	jwt := token(t, "ann")
	big := `{"t":"ping","x":"` + strings.Repeat("x", 20480) + `"}`
	before := residue(t, p)

	t.Run("cases", func(t *testing.T) {
		for _, test := range []struct {
			name string
			send [][]byte
			want int // close code
		}{
			{"unmasked", [][]byte{append(frameHeader(fin|opText, 0, 12), `{"t":"ping"}`...)}, 1002},
			{"reserved bit 1", [][]byte{masked(fin|rsv1|opText, `{"t":"ping"}`)}, 1002},
			{"reserved bit 3", [][]byte{masked(fin|rsv3|opPing, "")}, 1002},
			{"message within a message", [][]byte{masked(opText, `{"t":`), masked(fin|opText, `{"t":"ping"}`)}, 1002},
			{"binary", [][]byte{masked(fin|opBinary, `{"t":"ping"}`)}, 4002},
			{"not JSON", [][]byte{masked(fin|opText, "hello")}, 4002},
			{"empty", [][]byte{masked(fin|opText, "")}, 4002},
			{"an array", [][]byte{masked(fin|opText, `[{"t":"ping"}]`)}, 4002},
			{"null", [][]byte{masked(fin|opText, " null ")}, 4002},
			{"a second hello", [][]byte{masked(fin|opText, `{"t":"hello"}`)}, 4002},
			{"text that is not UTF-8", [][]byte{masked(fin|opText, "{\"t\":\"ping\",\"x\":\"\xff\"}")}, 1007},
			{"text that ends within a character", [][]byte{masked(opText, `{"t":"ping"} `), masked(fin|opContinuation, "\xc3")}, 1007},
			{"a surrogate", [][]byte{masked(fin|opText, "{\"t\":\"ping\",\"x\":\"\xed\xa0\x80\"}")}, 1007},
			{"reason that is not UTF-8", [][]byte{masked(fin|opClose, closing(1000, "\xff"))}, 1002},
			{"too long", [][]byte{masked(fin|opText, big)}, 1009},
			{"too long in fragments", [][]byte{masked(opText, big[:4000]), masked(fin|opContinuation, big[4000:])}, 1009},
			{"too long by far", [][]byte{append(frameHeader(fin|opText, 0x80, 1<<62), 1, 2, 3, 4)}, 1009},
			{"a length that is negative", [][]byte{append(frameHeader(fin|opText, 0x80, 1<<63), 1, 2, 3, 4)}, 1009},
			{"close code 1005", [][]byte{masked(fin|opClose, closing(1005, ""))}, 1002},
			{"close code 5000", [][]byte{masked(fin|opClose, closing(5000, ""))}, 1002},
			// Valid close frames are answered with the same code.
			{"no close code", [][]byte{masked(fin|opClose, "")}, 1005},
			{"close code 1000", [][]byte{masked(fin|opClose, closing(1000, "bye"))}, 1000},
			{"close code 4999", [][]byte{masked(fin|opClose, closing(4999, "é"))}, 4999},
			{"close within a message", [][]byte{masked(opText, `{"t":`), masked(fin|opClose, closing(1000, ""))}, 1000},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				c := dialRaw(t, p)
				c.greet(jwt)
				c.send(bytes.Join(test.send, nil))
				if got := c.awaitClose(); got != test.want {
					t.Errorf("the server closed with %d, want %d", got, test.want)
				}
			})
		}
	})
	awaitNothingLeft(t, p, before)
}

// Unusual but valid frames are accepted.
func TestUnusualFrames(t *testing.T) {
	t.Parallel()
	p := gatewayAlone(t)
	jwt := token(t, "ann")
	limit := `{"t":"ping","x":"` + strings.Repeat("x", 4096-len(`{"t":"ping","x":""}`)) + `"}`
	for _, test := range []struct {
		name string
		send [][]byte
	}{
		{"control frames between fragments", [][]byte{
			masked(opText, `{"t":`), masked(fin|opPing, "1"), masked(fin|opPong, ""), masked(fin|opContinuation, `"ping"}`),
		}},
		{"a character in two fragments", [][]byte{masked(opText, "{\"x\":\"\xc3"), masked(fin|opContinuation, "\xa9\",\"t\":\"ping\"}")}},
		{"a frame of just 4096 bytes", [][]byte{masked(fin|opText, limit)}},
		{"all in one packet after another", [][]byte{bytes.Repeat(masked(fin|opText, `{"t":"pong"}`), 50), masked(fin|opText, `{"t":"ping"}`)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := dialRaw(t, p)
			c.greet(jwt)
			for _, b := range test.send {
				c.send(b)
			}
			c.awaitText("pong")
			long := strings.Repeat("p", 125)
			c.send(masked(fin|opPing, long))
			for {
				op, payload, err := c.next()
				if err != nil {
					t.Fatal(err)
				}
				if op == opPong && string(payload) == long {
					break
				}
			}
			c.send(masked(fin|opClose, closing(1000, "")))
			if got := c.awaitClose(); got != 1000 {
				t.Errorf("the server closed with %d", got)
			}
		})
	}
}

// An invalid handshake gets an HTTP answer; an incomplete one gets none.
func TestInvalidHandshakes(t *testing.T) {
	t.Parallel()
	p := gatewayAlone(t)
	before := residue(t, p)
	t.Run("cases", func(t *testing.T) {
		for _, test := range []struct {
			name, send string
			status     int // 0 means no answer
		}{
			{"no WebSocket", "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\n\r\n", http.StatusUpgradeRequired},
			{"another version", handshake(wsKey, wsProtocol, "Sec-WebSocket-Version: 8"), http.StatusUpgradeRequired},
			{"no version", handshake(wsKey, wsProtocol), http.StatusUpgradeRequired},
			{"a foreign origin", handshake(wsKey, wsVersion, wsProtocol, "Origin: https://elsewhere.example"), http.StatusForbidden},
			{"half a handshake", handshake(wsKey, wsVersion)[:80], 0},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				c := dialRaw(t, p)
				sent := make(chan struct{})
				go func() { // the server may answer before it has read everything
					defer close(sent)
					c.send([]byte(test.send))
				}()
				if test.status == 0 {
					if b, err := io.ReadAll(c.in); err != nil { // until the server's timeout
						t.Errorf("the server said %q, and did not close: %v", b, err)
					}
				} else {
					res := c.answer()
					_ = res.Body.Close()
					if res.StatusCode != test.status {
						t.Errorf("the answer is %d, want %d", res.StatusCode, test.status)
					}
					if test.status == http.StatusUpgradeRequired && res.Header.Get("Sec-WebSocket-Version") != "13" {
						t.Errorf("the answer does not name the supported version: %v", res.Header)
					}
				}
				_ = c.conn.Close()
				<-sent
			})
		}
	})
	awaitNothingLeft(t, p, before)
}

// gatewayAlone launches a server with only the role gateway, so that only clients cause its load.
func gatewayAlone(t *testing.T) *process {
	t.Helper()
	return serve(t, newDatabase(t), "--roles=gateway", "--redis-url="+newRedis(t).URL())
}

// residue returns the number of connections and goroutines of a server.
func residue(t *testing.T, p *process) [2]float64 {
	t.Helper()
	page := metricsOf(t, p)
	return [2]float64{metric(t, page, "badged_gateway_connections"), metric(t, page, "go_goroutines")}
}

// awaitNothingLeft waits until a server has no more connections and goroutines than before.
func awaitNothingLeft(t *testing.T, p *process, before [2]float64) {
	t.Helper()
	// The numbers vary with connections to Postgres and of the test's own HTTP client.
	const few = 8
	await(t, fmt.Sprintf("no more than %v connections and goroutines", before), func() bool {
		now := residue(t, p)
		return now[0] <= before[0] && now[1] <= before[1]+few
	})
}
