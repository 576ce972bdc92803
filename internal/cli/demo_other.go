//go:build !unix

package cli

import "errors"

// demoCmd is `badged demo`, which runs on Unix only.
type demoCmd struct{}

// Run fails: the demo starts a private Postgres, and ends it with signals that this
// system lacks.
func (demoCmd) Run() error {
	return errors.New("the demo runs on Linux and macOS only: run it there, for example in WSL, or run `badged serve` with a database")
}
