// Package deploy holds tests of what is under deploy/ against what badged is:
// metrics, flags, routes and pages of the documentation that it speaks of.
package deploy
