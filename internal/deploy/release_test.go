package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The release script refuses a malformed version, or a folder that already exists, before it
// builds anything.
func TestReleaseIsRefused(t *testing.T) {
	taken := t.TempDir()
	for says, args := range map[string][]string{
		"usage: .ci/release VERSION FOLDER":       {"v1.2.3"},
		"the version must be like v1.2.3":         {"1.2.3", filepath.Join(taken, "new")},
		"rc.1, not v1.2":                          {"v1.2", filepath.Join(taken, "new")},
		taken + " exists already: choose another": {"v1.2.3", taken},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, ".ci/release"), args...)
		cmd.Env = append(os.Environ(), "SNAPSHOT=1")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%v ended with %v and should say %q: %s", args, err, says, out)
		}
	}
}
