package connect

import (
	"errors"
	"time"
)

// Wait has the flag --max-wait of commands that lock the tables of a partition.
type Wait struct {
	MaxWait time.Duration `help:"How long to wait for a transaction that uses the tables of a partition, such as a dump. For a prepared transaction, which does not end by itself, the wait is at most 10m. After that the command fails and names the transaction." default:"6h" env:"-"`
}

// Check fails if --max-wait is not positive.
func (w Wait) Check() error {
	if w.MaxWait <= 0 {
		return errors.New("--max-wait must be more than 0s")
	}
	return nil
}
