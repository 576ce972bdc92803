package operations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/fold/lag"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/pgsession"
)

// Lag is how far each partition is behind.
type Lag struct {
	Partitions []PartitionLag    `json:"partitions" doc:"Every partition, but those of shards that are away."`
	Away       []AwayShard       `json:"away,omitempty" doc:"The shards that cannot be reached now; absent if there are none."`
	Waiting    []Waiting         `json:"waiting,omitempty" doc:"Messages to rooms that wait for shards on others; absent if there are none."`
	Open       []OpenTransaction `json:"open_transactions,omitempty" doc:"Transactions that have written and stay open, of any database of the servers: they keep the log behind them from being archived; absent if there are none."`
}

// OpenTransaction is a long-running transaction.
type OpenTransaction struct {
	Shard    string   `json:"shard,omitempty" doc:"The shard whose server has it; absent without shards."`
	Database string   `json:"database" doc:"The database in which it runs."`
	Prepared string   `json:"prepared,omitempty" doc:"The identifier of a prepared transaction, which does not end by itself; absent for that of a session."`
	PID      int      `json:"pid,omitempty" doc:"The Postgres process of its session."`
	Name     string   `json:"application_name,omitempty" doc:"The application_name of its session."`
	Seconds  *float64 `json:"seconds,omitempty" doc:"For how long it has been open; absent if the role may not see that."`
	Text     string   `json:"text" doc:"Which it is, for how long it is open, and how to end it."`
}

// openTransactions returns the transactions on the server of a database that have been open for
// long, also of other databases on that server.
func openTransactions(ctx context.Context, s *cluster.Database) ([]OpenTransaction, error) {
	found, err := pgsession.OpenTransactions(ctx, s.Pool, pgsession.StaysOpen)
	if err != nil {
		return nil, err
	}
	var open []OpenTransaction
	for _, h := range found {
		o := OpenTransaction{Shard: s.Name, Database: h.Database, Prepared: h.Prepared, PID: h.PID, Name: h.Application, Text: fmt.Sprintf("%s, %s; %s", h, h.Open(), h.Remedy())}
		if !h.Since.IsZero() {
			seconds := h.Age.Seconds()
			o.Seconds = &seconds
		}
		open = append(open, o)
	}
	return open, nil
}

// Waiting counts the hints that one database (On) stores for another (For): messages to rooms
// that could not be appended there.
type Waiting struct {
	For      string  `json:"for" doc:"The shard that lacks them."`
	On       string  `json:"on" doc:"The shard that keeps them."`
	Messages int64   `json:"messages" doc:"How many messages these are, of at most 100,000 calls."`
	Seconds  float64 `json:"seconds" doc:"The age of the oldest."`
}

// AwayShard is a database that is not available.
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

// lagCount is the greatest number of rows of a partition in which servers and assistants count
// unfolded events.
const lagCount = 100_000

// Lag returns how far each partition is behind, and which databases are not available. It fails
// if no database is available.
func (o *Operations) Lag(ctx context.Context) (Lag, error) {
	lags, err := ReadLag(ctx, o.cfg.Cluster, lagCount)
	if len(lags.Partitions) > 0 && cluster.OnlyAway(err) {
		err = nil
	}
	return lags, err
}

// ReadLag returns how far each partition is behind. It counts events in at most limit rows of
// each partition. If databases are not available, it returns the lag of the other databases and
// an error that names the unavailable ones.
func ReadLag(ctx context.Context, c *cluster.Cluster, limit int) (Lag, error) {
	all := make([]Lag, len(c.Databases()))
	err := c.AtOnce(func(i int, s *cluster.Database) error {
		held, err := eventlog.Held(ctx, s.Pool)
		if err != nil {
			return err
		}
		lags, err := lag.Measure(ctx, s.Pool, held, limit)
		for _, l := range lags {
			all[i].Partitions = append(all[i].Partitions, newPartitionLag(s.Name, l))
		}
		if err == nil {
			all[i].Open, err = openTransactions(ctx, s)
		}
		return err
	})
	sum := Lag{Partitions: []PartitionLag{}}
	for _, one := range all {
		sum.Partitions = append(sum.Partitions, one.Partitions...)
		sum.Open = append(sum.Open, one.Open...)
	}
	for _, f := range cluster.AwayIn(err) {
		sum.Away = append(sum.Away, AwayShard{Shard: f.Database, Partitions: f.Partitions, Error: f.Err.Error()})
	}
	waiting, waitErr := c.Backlogs(ctx)
	for _, w := range waiting {
		sum.Waiting = append(sum.Waiting, Waiting{For: w.For, On: w.On, Messages: w.Messages, Seconds: w.Age.Seconds()})
	}
	slices.SortStableFunc(sum.Partitions, func(a, b PartitionLag) int { return cmp.Compare(a.Partition, b.Partition) })
	return sum, errors.Join(err, waitErr)
}

func newPartitionLag(shard string, l lag.Lag) PartitionLag {
	p := PartitionLag{Partition: l.Partition, Shard: shard, Head: l.Head.String(), Folded: l.Folded.String(), EventsBehind: l.Events, SecondsBehind: l.Age.Seconds(), Owner: l.Owner}
	if l.Notifier != nil {
		p.Notifier = l.Notifier.String()
	}
	return p
}
