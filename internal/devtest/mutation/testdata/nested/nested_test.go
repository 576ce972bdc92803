package nested

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// As the tests of the built program do.
func TestBuiltProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./program").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil || string(out) != "sound\n" {
		t.Errorf("it says %q, %v", out, err)
	}
}
