package shards

import (
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/eventlog"
	"github.com/badged/badged/internal/pgfault"
)

// AwayError is returned for a shard that cannot be reached. The call succeeded on the others.
type AwayError struct {
	Shard string
	// Partitions are the partitions that the map gives to the shard.
	Partitions []int
	Err        error
	// Lost is set if the shard can be reached, and does not hold the partitions.
	Lost bool
	// Bare is set if the shard can be reached, and lacks tables of badged.
	Bare bool
	// Unknown is set if the map names the shard, and the settings of the process do not.
	Unknown bool
}

// Error implements error.
func (e *AwayError) Error() string {
	if e.Lost {
		return e.Which() + ": the database was restored from before it got them; restore it to a later time"
	}
	if e.Unknown {
		return fmt.Sprintf("%s: add --shard %s=URL", e.Which(), e.Shard)
	}
	return fmt.Sprintf("%s: %v", e.Which(), e.Err)
}

// Which names the shard and its partitions without the cause, which may name hosts.
func (e *AwayError) Which() string {
	if e.Lost {
		return fmt.Sprintf("shard %s does not hold %s, as it should by the map", e.Shard, Named(e.Partitions))
	}
	if e.Bare {
		return fmt.Sprintf("shard %s, which has %s, lacks tables of badged", e.Shard, Named(e.Partitions))
	}
	if e.Unknown {
		return fmt.Sprintf("shard %s, which has %s, is not in the settings of this process", e.Shard, Named(e.Partitions))
	}
	if f := pgfault.Of(e.Err); f.OfLogin() {
		return fmt.Sprintf("shard %s, which has %s, %s", e.Shard, Named(e.Partitions), f)
	}
	return fmt.Sprintf("shard %s, which has %s, is away", e.Shard, Named(e.Partitions))
}

// Unwrap returns [ErrAway] and why the shard cannot be reached.
func (e *AwayError) Unwrap() []error { return []error{ErrAway, e.Err} }

// FaultError wraps the error of a shard that is not known to be away.
type FaultError struct {
	Shard string
	// Partitions are the partitions that the shard holds.
	Partitions []int
	Err        error
}

// Error implements error.
func (e *FaultError) Error() string { return fmt.Sprintf("shard %s: %v", e.Shard, e.Err) }

// Which names the shard, as the subject of a sentence.
func (e *FaultError) Which() string {
	return fmt.Sprintf("shard %s, which has %s,", e.Shard, Named(e.Partitions))
}

// Unwrap returns the error.
func (e *FaultError) Unwrap() error { return e.Err }

// Named names partitions in a sentence, as in "the partitions 0-3, 7".
func Named(partitions []int) string {
	switch len(partitions) {
	case 0:
		return "no partitions"
	case 1:
		return "partition " + List(partitions)
	}
	return "the partitions " + List(partitions)
}

// AwayIn returns each [*AwayError] in the tree of an error, one for each shard.
func AwayIn(err error) (all []*AwayError) {
	each(err, func(one error) bool {
		away, ok := one.(*AwayError) //nolint:errorlint // each goes through what it wraps
		if ok && !slices.ContainsFunc(all, func(a *AwayError) bool { return a.Shard == away.Shard }) {
			all = append(all, away)
		}
		return ok
	})
	return all
}

// each calls f with an error and the errors that it wraps. If f returns true, it skips what that
// error wraps.
func each(err error, f func(error) bool) {
	if err == nil || f(err) {
		return
	}
	switch wraps := err.(type) { //nolint:errorlint // it goes through what is wrapped
	case interface{ Unwrap() error }:
		each(wraps.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, one := range wraps.Unwrap() {
			each(one, f)
		}
	}
}

// Lacking returns the partitions whose users lack events after an append that failed with err:
// the partitions of shards that were away or could not store them. With [ErrHeldBack], all users
// lack the messages that were held back. It is nil if err does not say who lacks events.
func (c *Cluster) Lacking(err error) *PartialFailure {
	if !c.sharded || err == nil {
		return nil
	}
	s := &PartialFailure{Partitions: make([]bool, c.partitions), Err: err}
	known := true
	each(err, func(one error) bool {
		var partitions []int
		if one == ErrHeldBack { //nolint:errorlint // each goes through what wraps it
			for p := range s.Partitions {
				s.Partitions[p] = true
			}
			return true
		}
		switch of := one.(type) { //nolint:errorlint // each goes through what it wraps
		case *AwayError:
			partitions = of.Partitions
		case *FaultError:
			// A join fails if a shard that must be asked about the room is away.
			if errors.Is(of, events.ErrNotHeld) || pgfault.Of(of.Err) == pgfault.None && !errors.Is(of, ErrAway) {
				known = false
			}
			partitions = of.Partitions
		case interface{ Unwrap() []error }, interface{ Unwrap() error }:
			return false
		default:
			known = false
		}
		for _, p := range partitions {
			s.Partitions[eventlog.Ancestor(p, c.partitions)] = true
		}
		return true
	})
	if !known || !slices.Contains(s.Partitions, true) {
		return nil
	}
	return s
}

// Unknown returns an [*AwayError] for each shard that the map names and the settings do not,
// as when it has joined since the process was started; nil if there is none.
func (c *Cluster) Unknown() error { return c.state.Load().unknown }

// AwayShards returns the names of the shards that cannot be reached, in their order, and then
// of those that are not in the settings.
func (c *Cluster) AwayShards() (names []string) {
	for _, s := range c.shards {
		if s.Err() != nil {
			names = append(names, s.Name)
		}
	}
	for _, away := range AwayIn(c.Unknown()) {
		names = append(names, away.Shard)
	}
	return names
}
