package projector

import "github.com/badged/badged/internal/slots"

// Share bounds how many partitions several projectors of this process fold at once.
// Folding more at a time than the processor can makes more and smaller batches of the
// same events. It is safe for concurrent use.
type Share slots.Slots

// NewShare returns a share of n partitions at once.
func NewShare(n int) *Share { return (*Share)(slots.New(n)) }

// slots returns the slots, nil if there is room for all.
func (s *Share) slots() *slots.Slots { return (*slots.Slots)(s) }
