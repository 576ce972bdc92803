package web_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The Swift package knows the frames of the protocol and their fields by name. Whether it
// compiles .ci/swift shows.
func TestSwiftPackageKnowsTheFrames(t *testing.T) {
	sources, err := filepath.Glob("swift/Sources/Badged/*.swift")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	var text strings.Builder
	for _, source := range sources {
		b, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	known := map[string]bool{} // types, and names of fields
	for _, m := range regexp.MustCompile(`"([a-z_]+)"`).FindAllStringSubmatch(text.String(), -1) {
		known[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^\s+case ([a-zA-Z, ]+)$`).FindAllStringSubmatch(text.String(), -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			known[name] = true
		}
	}
	// What the client has no use for: it pages through nothing, and is registered for no push.
	unused := map[string]bool{"more": true, "device": true}

	frames, err := filepath.Glob("sdk/testdata/frames/*.json")
	if err != nil || len(frames) == 0 {
		t.Fatalf("no golden frames: %v", err)
	}
	for _, frame := range frames {
		b, err := os.ReadFile(frame)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(b, &fields); err != nil {
			t.Fatalf("%s: %v", frame, err)
		}
		if typ, _ := fields["t"].(string); !known[typ] {
			t.Errorf("%s: the type %q is not in the sources", frame, typ)
		}
		names := []map[string]any{fields}
		conversations, _ := fields["conversations"].([]any)
		for _, c := range conversations {
			names = append(names, c.(map[string]any)) //nolint:forcetypeassert // a golden frame
		}
		for _, of := range names {
			for name := range of {
				if !known[name] && !unused[name] {
					t.Errorf("%s: the field %q is not in the sources", frame, name)
				}
			}
		}
	}
}
