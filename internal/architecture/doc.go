// Package architecture is tests alone: they keep the shape of the code, which
// package knows which and what lies where, as it was meant.
package architecture
