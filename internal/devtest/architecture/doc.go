// Package architecture holds only tests. They check the structure of the code:
// which package may import which, and where files belong.
package architecture
