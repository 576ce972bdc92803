// Package web holds the pages that badged serves, as they were built from the
// sources in this folder. The built files are committed: building the Go
// program needs no Node.
package web

import (
	"embed"
	"io/fs"
)

//go:embed dist/demo
var dist embed.FS

// Demo returns the files of the page of `badged demo`: index.html and what it
// loads, by relative paths. They need no inline script or style and nothing
// from other origins, so that a Content-Security-Policy of
//
//	default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'
//
// lets the page work.
func Demo() fs.FS {
	files, err := fs.Sub(dist, "dist/demo")
	if err != nil {
		panic(err) // only for a path that is not valid, and this one is
	}
	return files
}
