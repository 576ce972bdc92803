//go:build !unix

package cli

import "errors"

// demoCmd is `badged demo`, which runs on Unix only.
type demoCmd struct{}

// devCmd is `badged dev`, which runs on Unix only.
type devCmd struct{}

// Run fails because `badged dev` needs a private Postgres, like the demo.
func (devCmd) Run() error {
	return errors.New("badged dev runs on Linux and macOS only: run it there, for example in WSL, or run `badged serve` with a database")
}

// Run fails: the demo starts a private Postgres and stops it with signals that this system
// does not support.
func (demoCmd) Run() error {
	return errors.New("the demo runs on Linux and macOS only: run it there, for example in WSL, or run `badged serve` with a database")
}
