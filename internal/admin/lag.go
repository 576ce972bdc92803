package admin

import (
	"context"
	"fmt"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/projector/lag"
)

// Lag is how far each partition is behind.
type Lag struct {
	Partitions []PartitionLag    `json:"partitions" doc:"Every partition, but those of shards that are away."`
	Away       []AwayShard       `json:"away,omitempty" doc:"The shards that cannot be reached now; absent if there are none."`
	Waiting    []Waiting         `json:"waiting,omitempty" doc:"Messages to rooms that wait for shards on others; absent if there are none."`
	Open       []OpenTransaction `json:"open_transactions,omitempty" doc:"Transactions that have written and stay open, of any database of the servers: they keep the log behind them from being archived; absent if there are none."`
}

// OpenTransaction is a transaction that stays open.
type OpenTransaction struct {
	Shard    string   `json:"shard,omitempty" doc:"The shard whose server has it; absent without shards."`
	Database string   `json:"database" doc:"The database in which it runs."`
	Prepared string   `json:"prepared,omitempty" doc:"The identifier of a prepared transaction, which does not end by itself; absent for that of a session."`
	PID      int      `json:"pid,omitempty" doc:"The Postgres process of its session."`
	Name     string   `json:"application_name,omitempty" doc:"The application_name of its session."`
	Seconds  *float64 `json:"seconds,omitempty" doc:"For how long it has been open; absent if the role may not see that."`
	Text     string   `json:"text" doc:"Which it is, for how long it is open, and how to end it."`
}

// OpenTransactions returns the transactions that stay open, on a server of a database.
func OpenTransactions(ctx context.Context, q events.Querier, shard string) ([]OpenTransaction, error) {
	found, err := pgsession.OpenTransactions(ctx, q, pgsession.StaysOpen)
	if err != nil {
		return nil, err
	}
	var open []OpenTransaction
	for _, h := range found {
		o := OpenTransaction{Shard: shard, Database: h.Database, Prepared: h.Prepared, PID: h.PID, Name: h.Application, Text: fmt.Sprintf("%s, %s; %s", h, h.Open(), h.Remedy())}
		if !h.Since.IsZero() {
			seconds := h.Age.Seconds()
			o.Seconds = &seconds
		}
		open = append(open, o)
	}
	return open, nil
}

// Waiting are messages to rooms that wait on a shard for another.
type Waiting struct {
	For      string  `json:"for" doc:"The shard that lacks them."`
	On       string  `json:"on" doc:"The shard that keeps them."`
	Messages int64   `json:"messages" doc:"How many messages these are, of at most 100,000 calls."`
	Seconds  float64 `json:"seconds" doc:"The age of the oldest."`
}

// AwayShard is a shard that cannot be reached.
type AwayShard struct {
	Shard      string `json:"shard" doc:"The name of the shard."`
	Partitions []int  `json:"partitions,omitempty" doc:"Its partitions."`
	Error      string `json:"error" doc:"Why it cannot be reached."`
}

// PartitionLag is a [lag.Lag] in the form for operators.
type PartitionLag struct {
	Partition     int     `json:"partition" doc:"The partition."`
	Shard         string  `json:"shard,omitempty" doc:"The shard that holds it; absent without shards."`
	Head          string  `json:"head" doc:"The position of the last event in the log, such as 1234/56."`
	Folded        string  `json:"folded" doc:"The position of the last folded event."`
	EventsBehind  int64   `json:"events_behind" doc:"Unfolded events, counted up to a limit."`
	SecondsBehind float64 `json:"seconds_behind" doc:"The age of the oldest unfolded event."`
	Owner         string  `json:"owner" doc:"The process that folds the partition; empty if none does."`
	Notifier      string  `json:"notifier,omitempty" doc:"The position up to which devices are told; absent if that is all that is folded, or there are none."`
}

// NewLag returns lags as operators see them.
func NewLag(lags []lag.Lag) Lag {
	l := Lag{Partitions: make([]PartitionLag, len(lags))}
	for i, p := range lags {
		l.Partitions[i] = PartitionLag{Partition: p.Partition, Head: p.Head.String(), Folded: p.Folded.String(), EventsBehind: p.Events, SecondsBehind: p.Age.Seconds(), Owner: p.Owner}
		if p.Notifier != nil {
			l.Partitions[i].Notifier = p.Notifier.String()
		}
	}
	return l
}
