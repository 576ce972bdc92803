package tests

import (
	"bytes"
	"testing"
)

// A client that floods the server is closed with a code that says so, whatever
// it sends, including input that makes no frames.
func TestFloods(t *testing.T) {
	t.Parallel()
	p := gatewayAlone(t)
	jwt := token(t, "ann")
	before := residue(t, p)
	t.Run("floods", func(t *testing.T) {
		for name, flood := range map[string]struct{ first, then []byte }{
			"pong frames":            {nil, masked(fin|opText, `{"t":"pong"}`)},
			"ping frames":            {nil, masked(fin|opText, `{"t":"ping"}`)},
			"commands":               {nil, masked(fin|opText, `{"t":"dance"}`)},
			"protocol pongs":         {nil, masked(fin|opPong, "")},
			"protocol pings":         {nil, masked(fin|opPing, "")},
			"pongs within a message": {masked(opText, `{"t":`), masked(fin|opPong, "")},
			"empty fragments":        {masked(opText, ""), masked(opContinuation, "")},
		} {
			t.Run(name, func(t *testing.T) {
				c := dialRaw(t, p)
				c.greet(jwt)
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					many := bytes.Repeat(flood.then, 1000)
					for _, err := c.conn.Write(flood.first); err == nil; {
						_, err = c.conn.Write(many)
					}
				}()
				// Unread answers end the connection too, perhaps earlier.
				if got := c.awaitClose(); got != 4101 && (name != "ping frames" && name != "commands" || got != 4103) {
					t.Errorf("the server closed with %d", got)
				}
				_ = c.conn.Close()
				<-sent
			})
		}
	})
	awaitNothingLeft(t, p, before)
}
