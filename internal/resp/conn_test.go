package resp

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// Answers of Redis pass, whole or byte by byte, and answers that announce too much do not.
func TestAnswers(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for answer, passes := range map[string]bool{
		"+OK\r\n-ERR no\r\n:1\r\n_\r\n#t\r\n,1.5\r\n(3492890328409238509324850943850943825024385\r\n": true,
		"$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n%0\r\n":                                                        true,
		"$12\r\n*2147483646\r\n*1\r\n":                                                                true, // in a text it is none
		"+" + long + "\r\n$100000\r\n" + long + "\r\n":                                                true,
		"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*2\r\n:1\r\n:2\r\n":                                        true,
		strings.Repeat("*1000\r\n"+strings.Repeat(":1\r\n", 1000), 2000):                              true,
		strings.Repeat("*1\r\n", maxDepth) + ":1\r\n" + strings.Repeat("*1\r\n", maxDepth) + ":1\r\n": true,
		"|1\r\n+ttl\r\n:1\r\n*1\r\n:1\r\n" + fmt.Sprintf("*%d\r\n", maxElements):                      true,
		"*2147483646\r\n":                                                 false,
		"%2147483646\r\n":                                                 false,
		"*9223372036854775807\r\n":                                        false,
		"%9223372036854775807\r\n":                                        false,
		"$9223372036854775807\r\n":                                        false,
		"$536870913\r\n":                                                  false,
		"*99999999999999999999999999999999999999999999\r\n":               false,
		fmt.Sprintf("*%d\r\n", maxElements+1):                             false,
		fmt.Sprintf("%%%d\r\n", maxElements):                              false,
		fmt.Sprintf("*2\r\n*%d\r\n*%d\r\n", maxElements/2, maxElements/2): false,
		strings.Repeat("*1\r\n", maxDepth+1):                              false,
	} {
		var whole, bytewise answers
		err := whole.follow([]byte(answer))
		var each error
		for i := range len(answer) {
			if each = bytewise.follow([]byte{answer[i]}); each != nil {
				break
			}
		}
		if (err == nil) != passes || (each == nil) != passes {
			t.Errorf("%.60q: whole %v, byte by byte %v", answer, err, each)
		}
	}
}

// However answers are nested and cut, they are followed to their ends.
func TestNestedAnswers(t *testing.T) {
	var draw func(rt *rapid.T, depth int) string
	draw = func(rt *rapid.T, depth int) string {
		kinds := 3
		if depth < 6 {
			kinds = 5
		}
		switch rapid.IntRange(0, kinds-1).Draw(rt, "kind") {
		case 0:
			return ":1\r\n"
		case 1:
			text := strings.Repeat("*9\r\n", rapid.IntRange(0, 3).Draw(rt, "text"))
			return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		case 2:
			return "$-1\r\n"
		case 3:
			n := rapid.IntRange(0, 3).Draw(rt, "elements")
			text := fmt.Sprintf("*%d\r\n", n)
			for range n {
				text += draw(rt, depth+1)
			}
			return text
		default:
			n := rapid.IntRange(0, 2).Draw(rt, "pairs")
			text := fmt.Sprintf("%%%d\r\n", n)
			for range 2 * n {
				text += draw(rt, depth+1)
			}
			return text
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		answer := draw(rt, 0)
		var a answers
		for len(answer) > 0 {
			n := rapid.IntRange(1, len(answer)).Draw(rt, "bytes")
			if err := a.follow([]byte(answer[:n])); err != nil {
				rt.Fatal(err)
			}
			answer = answer[n:]
		}
		if a.text != 0 || len(a.parts) != 0 || a.elements != 0 || len(a.line) != 0 {
			rt.Fatalf("behind the answer it is at %+v", a)
		}
	})
}

// A client of go-redis gets an error from a server that announces too much, in place of the
// end of the process.
func TestBrokenServer(t *testing.T) {
	for _, answer := range []string{"*2147483646\r\n", "%2147483646\r\n", "$9223372036854775807\r\n"} {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					for _, err := c.Read(make([]byte, 4096)); err == nil; _, err = c.Read(make([]byte, 4096)) {
						_, _ = c.Write([]byte(answer))
					}
				}()
			}
		}()
		client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), Dialer: Dialer(0, nil), MaxRetries: -1, Protocol: 2, DisableIdentity: true})
		if err := client.Do(context.WithoutCancel(t.Context()), "GET", "x").Err(); err == nil || !strings.Contains(err.Error(), "is it Redis?") {
			t.Errorf("%q is answered with %v", answer, err)
		}
		_ = client.Close()
		_ = listener.Close()
	}
}
