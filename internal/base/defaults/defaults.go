// Package defaults sets the fields of a Config to their defaults if the caller left them zero.
//
// The package does not know any Config.
package defaults

import "fmt"

// Set sets a field to its default value if the field is zero. It returns an error if the field is
// negative.
func Set[T ~int | ~int64](name string, field *T, value T) error {
	if *field < 0 {
		return fmt.Errorf("%s is negative: %v; 0 means the default", name, *field)
	}
	if *field == 0 {
		*field = value
	}
	return nil
}
