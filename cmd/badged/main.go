// Command badged keeps notification badges exact; `badged --help` lists its commands.
package main

import (
	"os"

	"github.com/badged/badged/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
