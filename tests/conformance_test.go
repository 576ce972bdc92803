package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// conforms runs a client, in tests/clients, against the kit of the binary. It must
// pass every scenario but those that it does not support.
func conforms(t *testing.T, unsupported []string, client ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	kit := exec.CommandContext(t.Context(), binary, append([]string{"conformance", "--timeout=" + patience.String(), "--json=" + file, "--"}, client...)...)
	kit.Dir = "clients"
	if out, err := kit.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", client, err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Passed    int
		Scenarios []struct{ Name, Result string }
	}
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	var lacks []string
	for _, s := range report.Scenarios {
		if s.Result == "unsupported" {
			lacks = append(lacks, s.Name)
		}
	}
	const least = 30 // an empty run would pass
	if !slices.Equal(lacks, unsupported) || report.Passed < least {
		t.Errorf("%v passes %d scenarios and does not support %q, want %q", client, report.Passed, lacks, unsupported)
	}
}

// The clients of the repository, and small ones with libraries by other authors,
// pass the conformance kit. A Go client does so in internal/conformance, where
// others fail.
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("TypeScript SDK", func(t *testing.T) {
		t.Parallel()
		conforms(t, []string{"auth-header", "auth-hello"}, "node", "conformance-sdk.mjs")
	})
	t.Run("Java client", func(t *testing.T) {
		t.Parallel()
		conforms(t, []string{"auth-subprotocol", "auth-hello"}, "java", "-cp", compileJavaClient(t), "Conformance")
	})
	t.Run("Node ws", func(t *testing.T) {
		t.Parallel()
		conforms(t, []string{"auth-subprotocol", "auth-hello"}, "node", "conformance-ws.mjs")
	})
	t.Run("Python websockets", func(t *testing.T) {
		t.Parallel()
		conforms(t, []string{"auth-subprotocol", "auth-header"}, pythonWith(t, "websockets"), "conformance.py")
	})
}

// compileJavaClient compiles the Java client with its adapter for Java 8, and
// returns the class path.
func compileJavaClient(t *testing.T) (classPath string) {
	t.Helper()
	sources, err := filepath.Glob("../web/java/src/com/badged/client/*.java")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources of the Java client: %v", err)
	}
	dir := t.TempDir()
	classPath = javaClassPath(t, dir)
	// Later compilers warn that they will not know Java 8 forever.
	args := []string{"--release", "8", "-Xlint:all,-options", "-Werror", "-d", dir, "-cp", classPath, "clients/java/Conformance.java"}
	if out, err := exec.CommandContext(t.Context(), "javac", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return classPath
}
