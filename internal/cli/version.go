package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/badged/badged/internal/version"
)

// versionCmd is `badged version`.
type versionCmd struct{}

// Run prints the version, the Go version and the platform.
func (versionCmd) Run(_ context.Context, streams Streams) error {
	_, err := fmt.Fprintf(streams.Out, "badged %s (%s, %s/%s)\n", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
