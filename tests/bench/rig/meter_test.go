package rig

import (
	"os"
	"testing"
)

// A side whose name has a slash has its profile in the folder, not in one below it.
func TestProfilesOfSidesWithSlashes(t *testing.T) {
	path := profilePath(t.TempDir(), "calls-badged/room-1")
	if err := os.WriteFile(path+".pprof", nil, 0o600); err != nil {
		t.Error(err)
	}
}
