// Package version returns the version of this program.
//
// The package does not know any other package of badged.
package version

import (
	"runtime/debug"
	"strings"
)

// stamp is the version of a build that has no Git history, such as the build of an image. It is set
// by:
//
//	go build -ldflags "-X github.com/badged/badged/internal/base/version.stamp=v1.2.3" ./cmd/badged
var stamp string

// String returns the version. It is v1.2.3 for a release, a pseudo-version such as
// v1.2.4-0.20261121085018-c41d4992f0ab between releases, and "devel" if unknown. It ends in +dirty
// if the sources were modified.
func String() string {
	info, _ := debug.ReadBuildInfo()
	return format(stamp, info)
}

// format returns the version in stamp. If stamp is empty, it returns the version in info, which may
// be nil.
func format(stamp string, info *debug.BuildInfo) string {
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
