// Package deploy tests that the files in deploy/ match badged: the metrics,
// flags, routes and documentation pages that they name. It also tests the scripts
// that check for vulnerabilities and make releases.
//
// It does not know the server: it reads files.
package deploy
