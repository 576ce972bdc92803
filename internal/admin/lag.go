package admin

import (
	"github.com/badged/badged/projector/lag"
)

// Lag is how far each partition is behind.
type Lag struct {
	Partitions []PartitionLag `json:"partitions" doc:"Every partition."`
	// Horizon is the oldest open transaction that has written; nil if there is
	// none. The route describes it, since it may be null.
	Horizon *Horizon `json:"horizon"`
}

// PartitionLag is a [lag.Lag] in the form for operators.
type PartitionLag struct {
	Partition     int     `json:"partition" doc:"The partition."`
	Head          string  `json:"head" doc:"The position of the last event in the log, such as 1234/56."`
	Folded        string  `json:"folded" doc:"The position of the last folded event."`
	EventsBehind  int64   `json:"events_behind" doc:"Unfolded events, counted up to a limit."`
	SecondsBehind float64 `json:"seconds_behind" doc:"The age of the oldest unfolded event."`
	Owner         string  `json:"owner" doc:"The process that folds the partition; empty if none does."`
}

// Horizon is a [lag.Horizon] in the form for operators.
type Horizon struct {
	PID         int     `json:"pid,omitempty" doc:"The process id of its session; absent for a prepared transaction."`
	Prepared    string  `json:"prepared,omitempty" doc:"The name of a prepared transaction."`
	User        string  `json:"user,omitempty" doc:"The database role of the session."`
	Database    string  `json:"database,omitempty" doc:"The database of the session; this and the next two are absent if badged's role may not see them."`
	Application string  `json:"application,omitempty" doc:"The application_name of the session."`
	State       string  `json:"state,omitempty" doc:"The state of the session."`
	Seconds     float64 `json:"seconds" doc:"The age of the transaction."`
}

// NewLag returns lags in the form for operators; open reports whether there is
// a horizon.
func NewLag(lags []lag.Lag, h lag.Horizon, open bool) Lag {
	l := Lag{Partitions: make([]PartitionLag, len(lags))}
	for i, p := range lags {
		l.Partitions[i] = PartitionLag{p.Partition, p.Head.String(), p.Folded.String(), p.Events, p.Age.Seconds(), p.Owner}
	}
	if open {
		l.Horizon = &Horizon{h.PID, h.Prepared, h.User, h.Database, h.Application, h.State, h.Age.Seconds()}
	}
	return l
}
