package tests

import (
	"bytes"
	"testing"
)

// The server closes the connection of a client that floods it, with the code for floods, whatever
// the client sends, including bytes that form no frame.
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
				if got := c.awaitClose(); got != 4101 {
					t.Errorf("the server closed with %d", got)
				}
				_ = c.conn.Close()
				<-sent
			})
		}
	})
	awaitNothingLeft(t, p, before)
}
