package protocol

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// Every frame and code in frames.go is described.
func TestEveryCodeAndFrameIsDescribed(t *testing.T) {
	source, err := os.ReadFile("frames.go")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, c := range append(CloseCodes(), ErrorCodes()...) {
		if c.Means == "" || c.Then == "" {
			t.Errorf("%+v does not say what it means and what to do", c)
		}
		described[c.Name], described[strconv.Itoa(c.Code)] = true, true
	}
	for _, f := range append(ClientFrames(), ServerFrames()...) {
		described[f.T] = true
	}
	constants := regexp.MustCompile(`(?m)^\t(?:Close|Code|Frame)\w+ += "?(\w+)"?`).FindAllSubmatch(source, -1)
	if len(constants) < 20 {
		t.Fatalf("only %d names found", len(constants))
	}
	for _, c := range constants {
		if !described[string(c[1])] {
			t.Errorf("%s is not described", c[0])
		}
	}
}
