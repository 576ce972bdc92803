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
	Partitions []PartitionLag    `json:"partitions" doc:"All partitions, except the partitions of shards that cannot be reached."`
	Away       []AwayShard       `json:"away,omitempty" doc:"The shards that cannot be reached now; absent if all shards can be reached."`
	Waiting    []Waiting         `json:"waiting,omitempty" doc:"Messages to rooms that one shard stores until another shard can be reached again; absent if there are none."`
	Open       []OpenTransaction `json:"open_transactions,omitempty" doc:"Transactions that have written and have been open for long, in any database of the Postgres servers. Events that were appended after the start of such a transaction cannot be archived. Absent if there are none."`
}

// OpenTransaction is a long-running transaction.
type OpenTransaction struct {
	Shard    string   `json:"shard,omitempty" doc:"The shard whose Postgres server runs the transaction; absent if there are no shards."`
	Database string   `json:"database" doc:"The database of the transaction."`
	Prepared string   `json:"prepared,omitempty" doc:"The identifier of a prepared transaction, which does not end by itself; absent for the transaction of a session."`
	PID      int      `json:"pid,omitempty" doc:"The process id of the session; absent for a prepared transaction."`
	Name     string   `json:"application_name,omitempty" doc:"The application_name of the session; absent if there is none."`
	Seconds  *float64 `json:"seconds,omitempty" doc:"For how many seconds the transaction has been open; absent if the role may not see this."`
	Text     string   `json:"text" doc:"A sentence that says which transaction this is, how long it has been open, and how to end it."`
}

// openTransactions returns the transactions that have been open for longer than pgsession.StaysOpen
// on the server of s, including transactions in other databases of this server.
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

// Waiting counts messages to rooms that could not be appended to a database yet: the database `On`
// stores them as hints for the database `For`.
type Waiting struct {
	For      string  `json:"for" doc:"The shard that cannot be reached, which lacks the messages."`
	On       string  `json:"on" doc:"The shard that stores the messages."`
	Messages int64   `json:"messages" doc:"The number of messages in the first 100,000 stored publish calls."`
	Seconds  float64 `json:"seconds" doc:"The age of the oldest of these messages, in seconds."`
}

// AwayShard is a database that is unavailable.
type AwayShard struct {
	Shard      string `json:"shard" doc:"The name of the shard."`
	Partitions []int  `json:"partitions,omitempty" doc:"The partitions of the shard, as last known."`
	Error      string `json:"error" doc:"Why it cannot be reached."`
}

// PartitionLag is a [lag.Lag] in the form for operators.
type PartitionLag struct {
	Partition     int     `json:"partition" doc:"The partition."`
	Shard         string  `json:"shard,omitempty" doc:"The shard that holds the partition; absent if there are no shards."`
	Head          string  `json:"head" doc:"The position of the last event in the log, such as 1234/56."`
	Folded        string  `json:"folded" doc:"The position of the last folded event."`
	EventsBehind  int64   `json:"events_behind" doc:"The number of unfolded events, counted up to a limit."`
	SecondsBehind float64 `json:"seconds_behind" doc:"The age of the oldest unfolded event, in seconds."`
	Owner         string  `json:"owner" doc:"The process that folds the partition; empty if no process does."`
	Notifier      string  `json:"notifier,omitempty" doc:"The position up to which a notifier has read the log for devices; absent if the notifier has read all folded events, or if there are no devices."`
}

// lagCount is the maximum number of rows per partition in which the HTTP API and the assistant
// count unfolded events.
const lagCount = 100_000

// Lag returns how far the folding of each partition is behind the log, and which databases are not
// available. It fails if no database is available.
func (o *Operations) Lag(ctx context.Context) (Lag, error) {
	lags, err := ReadLag(ctx, o.cfg.Cluster, lagCount)
	if len(lags.Partitions) > 0 && cluster.OnlyAway(err) {
		err = nil
	}
	return lags, err
}

// ReadLag returns how far the folding of each partition is behind the log. It counts unfolded
// events in at most `limit` rows of each partition. If databases are unavailable, it returns the
// lag of the other databases and an error that names the unavailable ones.
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
