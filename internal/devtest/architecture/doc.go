// Package architecture contains only tests. They check the structure of the code: which package may
// import which others, and where files belong.
package architecture
