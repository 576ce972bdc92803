//go:build !unix

package cli

import "errors"

// demoCmd is `badged demo`. It can only run on Unix.
type demoCmd struct{}

// devCmd is `badged dev`. It can only run on Unix.
type devCmd struct{}

// Run fails: `badged dev` needs a private Postgres too, which the demo cannot start on this system.
func (devCmd) Run() error {
	return errors.New("badged dev runs on Linux and macOS only: run it there, for example in WSL, or run `badged serve` with a database")
}

// Run fails: the demo starts a private Postgres, and stops it with signals that this system does
// not support.
func (demoCmd) Run() error {
	return errors.New("the demo runs on Linux and macOS only: run it there, for example in WSL, or run `badged serve` with a database")
}
