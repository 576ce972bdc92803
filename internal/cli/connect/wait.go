package connect

import (
	"errors"
	"time"
)

// Wait has the flag --max-wait, for commands that lock the tables of a partition.
type Wait struct {
	MaxWait time.Duration `help:"How long to wait for a transaction that uses the tables of a partition, such as a dump, and at most 10m for a prepared one, which does not end by itself. Then the command fails and says which it is." default:"6h" env:"-"`
}

// Check fails if --max-wait is not positive.
func (w Wait) Check() error {
	if w.MaxWait <= 0 {
		return errors.New("--max-wait must be more than 0s")
	}
	return nil
}
