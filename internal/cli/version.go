package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/badged/badged/internal/version"
)

// versionCmd is `badged version`.
type versionCmd struct{}

// Run prints the version, and what it was built with and for.
func (versionCmd) Run(_ context.Context, streams Streams) error {
	_, err := fmt.Fprintf(streams.Out, "badged %s (%s, %s/%s)\n", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
