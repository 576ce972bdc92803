// Package defaults sets the fields of a Config that its caller left zero.
//
// The package does not know any Config.
package defaults

import "fmt"

// Set sets a field that is zero to its default, and fails if it is negative.
func Set[T ~int | ~int64](name string, field *T, value T) error {
	if *field < 0 {
		return fmt.Errorf("%s is negative: %v; 0 means the default", name, *field)
	}
	if *field == 0 {
		*field = value
	}
	return nil
}
