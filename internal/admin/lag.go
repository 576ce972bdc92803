package admin

import (
	"github.com/badged/badged/projector/lag"
)

// Lag is how far each partition is behind.
type Lag struct {
	Partitions []PartitionLag `json:"partitions"`
	// Horizon is the oldest transaction that has written, null where there is
	// none.
	Horizon *Horizon `json:"horizon"`
}

// PartitionLag is a projector.Lag as operators see it.
type PartitionLag struct {
	Partition int `json:"partition"`
	// Head and Folded are positions, such as "1234/56".
	Head   string `json:"head"`
	Folded string `json:"folded"`
	// EventsBehind is counted up to a limit.
	EventsBehind  int64   `json:"events_behind"`
	SecondsBehind float64 `json:"seconds_behind"`
	// Owner is empty where nobody folds the partition.
	Owner string `json:"owner"`
}

// Horizon is a projector.Horizon as operators see it.
type Horizon struct {
	PID      int    `json:"pid,omitempty"`
	Prepared string `json:"prepared,omitempty"`
	// What Postgres does not tell the role is left out.
	User        string  `json:"user,omitempty"`
	Database    string  `json:"database,omitempty"`
	Application string  `json:"application,omitempty"`
	State       string  `json:"state,omitempty"`
	Seconds     float64 `json:"seconds"`
}

// NewLag returns lags as operators see them; open is whether there is a horizon.
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
