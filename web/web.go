// Package web embeds the pages that badged serves, built from the sources in
// this folder, and the golden frames. The built files are committed, so that
// building the Go program needs no Node.
//
// It does not know any Go package. ADR 49 explains the TypeScript client.
package web

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed dist/demo dist/admin
var dist embed.FS

// Demo returns the files of the page of `badged demo`: index.html and the files
// that it loads by relative paths.
func Demo() fs.FS { return page("dist/demo") }

// Admin returns the files of the admin page, like Demo.
func Admin() fs.FS { return page("dist/admin") }

func page(dir string) fs.FS { return sub(dist, dir) }

func sub(all embed.FS, dir string) fs.FS {
	files, err := fs.Sub(all, dir)
	if err != nil {
		panic(err) // only if the path is invalid
	}
	return files
}

//go:embed sdk/testdata/frames
var frames embed.FS

// Frames returns the golden frames of the protocol, a file for each.
func Frames() fs.FS { return sub(frames, "sdk/testdata/frames") }

// policy limits a page to its own origin and to scripts and styles in files.
// The favicon that a page draws is a data URL.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// Handler serves the files of a page.
func Handler(files fs.FS) http.Handler {
	server := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		server.ServeHTTP(w, r)
	})
}
