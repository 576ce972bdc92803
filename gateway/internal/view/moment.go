package view

import "time"

// Moment is a time on the clock of the database, in microseconds since 1970; 0 is
// none.
type Moment int64

// Older returns the earlier of two moments; either may be none.
func (m Moment) Older(other Moment) Moment {
	if m == 0 || other != 0 && other < m {
		return other
	}
	return m
}

// At returns a time as a moment.
func At(t time.Time) Moment { return Moment(t.UnixMicro()) }
