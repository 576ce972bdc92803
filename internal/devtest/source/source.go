// Package source finds files of the repository for tests.
package source

import (
	"os"
	"path/filepath"
)

// Path returns the path of a file or folder whose path within the repository is name. It finds the
// repository from the working directory, because a binary need not contain paths; tests run within
// the repository. It returns "" if the working directory is elsewhere.
func Path(name string) string {
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if path := filepath.Join(dir, name); exists(filepath.Join(dir, "internal/devtest/source")) {
			return path
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
