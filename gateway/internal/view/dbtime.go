package view

import "time"

// DBTime is a time by the clock of the database, in microseconds since 1970; 0 means none.
type DBTime int64

// Older returns the earlier of two times. If one of them is 0, it returns the other.
func (m DBTime) Older(other DBTime) DBTime {
	if m == 0 || other != 0 && other < m {
		return other
	}
	return m
}

// DBTimeOf converts a time.
func DBTimeOf(t time.Time) DBTime { return DBTime(t.UnixMicro()) }
