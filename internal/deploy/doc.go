// Package deploy tests that the files in deploy/ match badged: the metrics,
// flags, routes and documentation pages that they name.
package deploy
