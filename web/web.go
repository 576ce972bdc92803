// Package web holds the pages that badged serves, as they were built from the
// sources in this folder. The built files are committed: building the Go
// program needs no Node.
package web

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed dist/demo dist/admin
var dist embed.FS

// Demo returns the files of the page of `badged demo`: index.html and what it
// loads, by relative paths.
func Demo() fs.FS { return page("dist/demo") }

// Admin returns the files of the admin page, in the same way.
func Admin() fs.FS { return page("dist/admin") }

func page(dir string) fs.FS {
	files, err := fs.Sub(dist, dir)
	if err != nil {
		panic(err) // only for a path that is not valid, and these are
	}
	return files
}

// policy lets a page load and reach nothing from elsewhere, and run no script
// and apply no style that is not in a file. Pictures that it draws itself are
// data.
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
