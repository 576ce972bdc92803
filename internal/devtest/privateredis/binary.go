package privateredis

import (
	"errors"
	"fmt"
	"os/exec"
)

const binaryName = "redis-server"

// ErrNotInstalled is returned, wrapped, by [Start] if it finds no redis-server.
// Its text says what to install.
var ErrNotInstalled = errors.New("privateredis: no redis-server on this machine: " +
	"install one (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis) or put it in PATH")

// usualPlaces are the directories where package managers install redis-server.
// PATH may lack them.
func usualPlaces() []string {
	return []string{
		"/usr/bin",
		"/usr/local/bin",
		"/usr/sbin",
		"/opt/homebrew/bin",
		"/opt/homebrew/opt/redis/bin",
		"/usr/local/opt/redis/bin",
		"/home/linuxbrew/.linuxbrew/bin",
	}
}

// findBinary returns the path of the redis-server that lookPath finds in PATH,
// or else in the first of places that holds one.
func findBinary(lookPath func(string) (string, error), places []string) (string, error) {
	path, err := lookPath(binaryName)
	if err == nil {
		return path, nil
	}
	for _, dir := range places {
		if path, err := exec.LookPath(dir + "/" + binaryName); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w (%w)", ErrNotInstalled, err)
}
