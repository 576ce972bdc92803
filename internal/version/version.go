// Package version says which release this is.
package version

import (
	"runtime/debug"
	"strings"
)

// stamp is set where the program is built from an archive or an image, which
// have no history to read the version from:
//
//	go build -ldflags "-X github.com/badged/badged/internal/version.stamp=v1.2.3" ./cmd/badged
var stamp string

// String is the version, such as v1.2.3; where it was built between releases
// such as v1.2.4-0.20261121085018-c41d4992f0ab, with +dirty behind it where the
// sources were changed; "devel" where nothing is known.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return of(stamp, info)
}

// of returns the version of what was stamped and built so; info may be nil.
func of(stamp string, info *debug.BuildInfo) string {
	if stamp != "" {
		return stamp
	}
	if info == nil {
		return "devel"
	}
	if v := strings.Trim(info.Main.Version, "()"); v != "" {
		return v
	}
	return "devel"
}
