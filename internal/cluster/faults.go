package cluster

import (
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/pgfault"
)

// FaultKind says what is wrong with a database.
type FaultKind int

// The kinds of faults. The error of every kind except Failed wraps [ErrAway].
const (
	// Failed: the call failed on the database, which counts as reachable.
	Failed FaultKind = iota
	// Away: the database is unavailable.
	Away
	// Lost: the database does not hold all partitions that the map assigns to it.
	Lost
	// Bare: tables of badged are missing.
	Bare
	// Unknown: the map names the database, but the configuration of the process does not.
	Unknown
)

// Fault is the error of one database in a call that uses several databases.
type Fault struct {
	Kind     FaultKind
	Database string
	// Partitions has the partitions that the map assigns to the database. But if Kind is Lost, it
	// has only the partitions that the database lost; and if Kind is Failed or Bare, only the
	// partitions that the database holds.
	Partitions []int
	Err        error
}

// Error implements error.
func (f *Fault) Error() string {
	switch f.Kind {
	case Failed:
		return fmt.Sprintf("shard %s: %v", f.Database, f.Err)
	case Lost:
		return f.Which() + ": the database was restored to a time before it got them; restore it to a later time"
	case Unknown:
		return fmt.Sprintf("%s: add --shard %s=URL", f.Which(), f.Database)
	}
	return fmt.Sprintf("%s: %v", f.Which(), f.Err)
}

// Which returns a text that names the database and its kind of fault. The text does not include
// Err, which may contain host names.
func (f *Fault) Which() string {
	having := fmt.Sprintf("shard %s, which has %s,", f.Database, Named(f.Partitions))
	fault := pgfault.FaultOf(f.Err)
	switch {
	case f.Kind == Lost:
		return fmt.Sprintf("shard %s does not hold %s, which the map assigns to it", f.Database, Named(f.Partitions))
	case f.Kind == Bare:
		return having + " does not have all tables of badged"
	case f.Kind == Unknown:
		return having + " is not in the settings of this process"
	case f.Kind == Failed || fault.OfLogin():
		return having + " " + fault.String()
	}
	return having + " is unavailable"
}

// Unwrap returns Err, and [ErrAway] unless Kind is Failed.
func (f *Fault) Unwrap() []error {
	if f.Kind == Failed {
		return []error{f.Err}
	}
	return []error{ErrAway, f.Err}
}

// PartialFailure is the error of a call that failed on some databases or partitions, and may have
// succeeded on the rest. [AwayIn] returns the faults of the databases.
type PartialFailure struct {
	// Partitions marks the partitions of the users whose data were not written or read. The index
	// is the partition number before any split, which [Cluster.Route] returns. Partitions is nil if
	// the call is not about users.
	Partitions []bool
	// UserIDs names the users that were not read, in the order of the call.
	UserIDs []string
	// Err is the cause. It names the databases or partitions.
	Err error
}

// Error implements error.
func (e *PartialFailure) Error() string {
	if len(e.UserIDs) > 0 {
		return fmt.Sprintf("%d users cannot be read: %v", len(e.UserIDs), e.Err)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *PartialFailure) Unwrap() error { return e.Err }

// Numbers returns the marked partitions, in ascending order.
func (e *PartialFailure) Numbers() []int {
	all := []int{}
	for p, marked := range e.Partitions {
		if marked {
			all = append(all, p)
		}
	}
	return all
}

// Add returns a failure with the partitions, users and errors of e and other. e and other may be
// nil.
func (e *PartialFailure) Add(other *PartialFailure) *PartialFailure {
	switch {
	case e == nil:
		return other
	case other == nil:
		return e
	}
	sum := &PartialFailure{Partitions: slices.Clone(e.Partitions), UserIDs: slices.Concat(e.UserIDs, other.UserIDs), Err: errors.Join(e.Err, other.Err)}
	for p, marked := range other.Partitions {
		sum.Partitions[p] = sum.Partitions[p] || marked
	}
	return sum
}

// Without returns the users in userIDs that were read: those that are not in e.UserIDs. e may be
// nil.
func (e *PartialFailure) Without(userIDs []string) []string {
	if e == nil {
		return userIDs
	}
	unread := make(map[string]bool, len(e.UserIDs))
	for _, id := range e.UserIDs {
		unread[id] = true
	}
	return slices.DeleteFunc(slices.Clone(userIDs), func(id string) bool { return unread[id] })
}

// Named formats partitions for a sentence, as in "the partitions 0-3, 7".
func Named(partitions []int) string {
	switch len(partitions) {
	case 0:
		return "no partitions"
	case 1:
		return "partition " + List(partitions)
	}
	return "the partitions " + List(partitions)
}

// AwayIn returns the faults that an error wraps, without faults of the kind Failed. If the error
// wraps several faults of one database, the result has only the first of them.
func AwayIn(err error) (all []*Fault) {
	each(err, func(one error) bool {
		fault, ok := one.(*Fault) //nolint:errorlint // each unwraps it
		if !ok || fault.Kind == Failed {
			return false
		}
		if !slices.ContainsFunc(all, func(f *Fault) bool { return f.Database == fault.Database }) {
			all = append(all, fault)
		}
		return true
	})
	return all
}

// OnlyAway reports whether every cause of an error is a [*Fault] whose kind is not Failed, such
// as a database that is unavailable.
func OnlyAway(err error) bool {
	only := true
	each(err, func(one error) bool {
		switch of := one.(type) { //nolint:errorlint // each unwraps it
		case *Fault:
			only = only && of.Kind != Failed
			return true
		case interface{ Unwrap() []error }, interface{ Unwrap() error }:
			return false
		}
		only = false
		return true
	})
	return only
}

// each calls f with an error and with all errors that it wraps. If f returns true, each skips
// the errors that this error wraps.
func each(err error, f func(error) bool) {
	if err == nil || f(err) {
		return
	}
	switch wraps := err.(type) { //nolint:errorlint // each unwraps
	case interface{ Unwrap() error }:
		each(wraps.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, one := range wraps.Unwrap() {
			each(one, f)
		}
	}
}

// partialAppend converts the error of an append to a [*PartialFailure] if every cause of the error
// says which partitions lack events. Two kinds of causes do: a [*Fault] of a database that was
// unavailable or could not store its events, and [ErrHeldBack], which means all partitions, since
// no database has stored the message.
func (c *Cluster) partialAppend(err error) error {
	if err == nil {
		return nil
	}
	s := &PartialFailure{Partitions: make([]bool, c.partitions), Err: err}
	known := true
	each(err, func(one error) bool {
		if one == ErrHeldBack { //nolint:errorlint // each unwraps
			for p := range s.Partitions {
				s.Partitions[p] = true
			}
			return true
		}
		switch of := one.(type) { //nolint:errorlint // each unwraps it
		case *Fault:
			// Before a database appends that users join a room, it queries the other databases
			// about the room. So the append on a reachable database also fails, with ErrAway, if
			// another database is unavailable.
			if of.Kind == Failed && (errors.Is(of, events.ErrNotHeld) || pgfault.FaultOf(of.Err) == pgfault.None && !errors.Is(of, ErrAway)) {
				known = false
			}
			for _, p := range of.Partitions {
				s.Partitions[eventlog.Ancestor(p, c.partitions)] = true
			}
			return true
		case interface{ Unwrap() []error }, interface{ Unwrap() error }:
			return false
		}
		known = false
		return true
	})
	if !known || !slices.Contains(s.Partitions, true) {
		return err
	}
	return s
}

// Unknown returns a [*Fault] for each database that the map names but the configuration of this
// process does not, such as a database that joined after the process started. The result is nil if
// there is no such database.
func (c *Cluster) Unknown() error { return c.state.Load().unknown }

// AwayNames returns the names of the databases that cannot be reached, in the order of the
// configuration. After them it returns the databases that the map names but the configuration does
// not.
func (c *Cluster) AwayNames() (names []string) {
	_, err := c.Present()
	for _, away := range AwayIn(err) {
		names = append(names, away.Database)
	}
	return names
}
