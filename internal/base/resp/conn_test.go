package resp

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Answers of Redis pass, whether they arrive whole or byte by byte. Answers that announce too
// much fail.
func TestAnswers(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for answer, passes := range map[string]bool{
		"+OK\r\n-ERR no\r\n:1\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n":                                      true,
		"$11\r\n*2147483646\r\n*1\r\n":                                                                true, // the second line is part of a text, so it announces no array
		"+" + long + "\r\n$100000\r\n" + long + "\r\n":                                                true,
		"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*2\r\n:1\r\n:2\r\n":                                        true,
		strings.Repeat("*1000\r\n"+strings.Repeat(":1\r\n", 1000), 2000):                              true,
		strings.Repeat("*1\r\n", maxDepth) + ":1\r\n" + strings.Repeat("*1\r\n", maxDepth) + ":1\r\n": true,
		"HTTP/1.1 400\r\n":         false,
		"\r\n":                     false,
		"%1\r\n:1\r\n:1\r\n":       false,
		"*2147483646\r\n":          false,
		"*9223372036854775807\r\n": false,
		"$9223372036854775807\r\n": false,
		"$536870913\r\n":           false,
		"*99999999999999999999999999999999999999999999\r\n":               false,
		fmt.Sprintf("*%d\r\n", maxElements+1):                             false,
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

// The parser finds the end of each answer, however answers are nested and split into reads.
func TestNestedAnswers(t *testing.T) {
	var draw func(rt *rapid.T, depth int) string
	draw = func(rt *rapid.T, depth int) string {
		kinds := 3
		if depth < 6 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(rt, "kind") {
		case 0:
			return ":1\r\n"
		case 1:
			text := strings.Repeat("*9\r\n", rapid.IntRange(0, 3).Draw(rt, "text"))
			return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		case 2:
			return "$-1\r\n"
		default:
			n := rapid.IntRange(0, 3).Draw(rt, "elements")
			text := fmt.Sprintf("*%d\r\n", n)
			for range n {
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
