package view

import "time"

// Moment is a time by the clock of the database, in microseconds since 1970; 0 means none.
type Moment int64

// Older returns the earlier of two moments. If one of them is 0, it returns the other.
func (m Moment) Older(other Moment) Moment {
	if m == 0 || other != 0 && other < m {
		return other
	}
	return m
}

// At converts a time to a moment.
func At(t time.Time) Moment { return Moment(t.UnixMicro()) }
