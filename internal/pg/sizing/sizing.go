// Package sizing estimates the servers, disk and bandwidth that a chat of a given size needs. It
// computes them from the measurements on two cores in docs/benchmarks.md and docs/operations.md.
//
// The package does not know any running server.
package sizing

import (
	"errors"
	"fmt"
	"math"
)

// These constants are measurements. Times are in seconds of CPU, sizes in bytes.
const (
	bulkEvent    = 19e-6    // publishing and folding one of many events in a call
	singleEvent  = 540e-6   // publishing an event alone, and folding it
	nextUser     = 10.6e-6  // every user of an event except the first
	roomMessage  = 800e-6   // a message to a room, in each database; the number of members hardly matters
	toldUser     = 100e-6   // one call of a webhook, for one user whose badge has changed
	postgresPart = 0.45     // the fraction of these times that Postgres uses; badged uses the rest
	toldMembers  = 4 * 100  // webhooks get an event for each member of rooms up to this size, with the default number of partitions
	manyUsers    = 3e6      // with this many users in a shard, the times above double
	walBulk      = 360      // WAL for each user that an event changes
	walSingle    = 1360     // WAL for an event published alone
	logBulk      = 35       // an event in the log
	logSingle    = 360      // the same for an event published alone
	logNextUser  = 5        // in the log, for every user of an event except the first
	keyBytes     = 18       // the event key of an event
	keyNextUser  = 8        // event keys, for every user of an event except the first
	keyDays      = 14 * 1.5 // the longest time for which event keys are stored, in days
	userRow      = 470
	conversation = 300
	connection   = 11 << 10
	ingested     = 76_000 // events a second that one process reads from the slowest kind of broker
	// PerGateway is the largest number of connections of one process that was measured.
	PerGateway = 15_000
	// MaxShards is the largest number of databases: there are at most 1,024 partitions, and each
	// database has at least one partition.
	MaxShards = 1024
)

const day = 86400

// Load describes a chat: its users, their traffic and the servers that it may use.
type Load struct {
	Users          float64 `json:"users"`
	MessagesPerDay float64 `json:"messages_per_day"`
	// Members is the number of users who get each message. Reads is the average number of read
	// events for each delivery of a message to a user.
	Members float64 `json:"members"`
	Reads   float64 `json:"reads"`
	// Rooms is true if messages go to rooms instead of naming their members.
	Rooms bool `json:"rooms"`
	// Push is the fraction of the users who have a device registered for pushes, 0 to 1.
	Push float64 `json:"push"`
	// Webhooks is the number of webhooks that are called when badges change.
	Webhooks float64 `json:"webhooks"`
	// Conversations is the number of conversations of one user.
	Conversations float64 `json:"conversations"`
	// Connected is the fraction of the users who are connected at a time, 0 to 1.
	Connected float64 `json:"connected"`
	// Peak is the traffic of the busiest second divided by the average.
	Peak float64 `json:"peak"`
	// Single is true if events are published one at a time.
	Single bool `json:"single"`
	// LogDays is the number of days for which events stay in the log in the database.
	LogDays float64 `json:"log_days"`
	// Cores, WAL (in bytes a second) and Disk (in bytes) are the capacity of one shard's
	// server.
	Cores float64 `json:"cores"`
	WAL   float64 `json:"wal"`
	Disk  float64 `json:"disk"`
}

// Check returns an error that lists the fields out of range, or nil.
func (l Load) Check() error {
	var errs []error
	members := 10_000.0
	if l.Rooms {
		members = 1e7
	}
	for _, v := range []struct {
		name     string
		value    float64
		min, max float64
	}{
		{"--users", l.Users, 1, 1e11},
		{"--messages-per-day", l.MessagesPerDay, 0, 1e15},
		{"--members", l.Members, 1, members},
		{"--reads", l.Reads, 0, 100},
		{"--conversations", l.Conversations, 0, 1e6},
		{"--connected", l.Connected, 0, 1},
		{"--peak", l.Peak, 1, 1000},
		{"--push", l.Push, 0, 1},
		{"--webhooks", l.Webhooks, 0, 1000},
		{"--log-days", l.LogDays, 0, 1e5},
		{"--cores", l.Cores, 1, 1024},
		{"--wal", l.WAL, 1e6, 1e11},
		{"--disk", l.Disk, 1e9, 1e16},
	} {
		if !(v.value >= v.min && v.value <= v.max) { // also true for NaN
			errs = append(errs, fmt.Errorf("%s must be from %g to %g, is %g", v.name, v.min, v.max, v.value))
		}
	}
	return errors.Join(errs...)
}

// Needs are the resources that a load needs.
type Needs struct {
	// EventsPerSecond and ChangesPerSecond are averages. A change is an event for one user:
	// an event that names ten users makes ten changes.
	EventsPerSecond  float64 `json:"events_per_second"`
	ChangesPerSecond float64 `json:"changes_per_second"`
	// PostgresCores and BadgedCores are the numbers of fully used cores in the busiest second.
	PostgresCores float64 `json:"postgres_cores"`
	BadgedCores   float64 `json:"badged_cores"`
	// Shards is the number of databases, each on its own server. LimitedBy is the resource that
	// would not suffice with one shard fewer: "cores", "WAL" or "disk". It is "" for one shard.
	// Fits is false if even MaxShards shards do not suffice.
	Shards    int    `json:"shards"`
	LimitedBy string `json:"limited_by,omitempty"`
	Fits      bool   `json:"fits"`
	// WALPerSecond is in bytes, in the busiest second.
	WALPerSecond float64 `json:"wal_bytes_per_second"`
	// Tables, Keys (for event keys) and Log are sizes on disk, in bytes.
	Tables float64 `json:"table_bytes"`
	Keys   float64 `json:"key_bytes"`
	Log    float64 `json:"log_bytes"`
	// RedisPerSecond is an upper limit of the number of updates that Redis delivers for connected
	// users in the busiest second.
	RedisPerSecond float64 `json:"redis_messages_per_second"`
	Connections    float64 `json:"connections"`
	// GatewayBytes is the memory of all connections if all are idle. Gateways is the number of
	// gateway processes.
	GatewayBytes float64 `json:"gateway_bytes"`
	Gateways     int     `json:"gateways"`
	// PushesPerSecond is an upper limit of the number of pushes in the busiest second.
	PushesPerSecond float64 `json:"pushes_per_second"`
	// CallsPerSecond is an upper limit of the number of webhook calls in the busiest second: one
	// call for each change of a user and each webhook.
	CallsPerSecond float64 `json:"webhook_calls_per_second"`
	// Ingesting is the number of processes that read the events from a broker, if the chat
	// publishes its events to a broker.
	Ingesting int `json:"ingest_processes"`
}

// Estimate returns the needs of a load on the smallest number of shards that suffices.
func Estimate(l Load) Needs {
	limitedBy := ""
	for shards := 1; ; shards++ {
		n := needsOn(l, shards)
		n.LimitedBy = limitedBy // the resource that did not suffice with one shard fewer
		lacks := l.lacks(&n)
		n.Fits = lacks == ""
		if n.Fits || shards == MaxShards {
			return n
		}
		limitedBy = lacks
	}
}

// lacks returns the resource for which the needs n exceed the capacity of the shards by the
// greatest factor. It returns "" if all resources suffice.
func (l Load) lacks(n *Needs) (by string) {
	most := 1.0
	for _, limit := range []struct {
		by         string
		need, have float64
	}{
		{"cores", n.PostgresCores, l.Cores}, {"WAL", n.WALPerSecond, l.WAL}, {"disk", n.Tables + n.Keys + n.Log, l.Disk},
	} {
		if used := limit.need / (limit.have * float64(n.Shards)); used > most {
			most, by = used, limit.by
		}
	}
	return by
}

// touched returns the expected number of shards that hold at least one of the users.
func touched(shards int, users float64) float64 {
	s := float64(shards)
	return s * -math.Expm1(users*math.Log1p(-1/s))
}

// needsOn returns the needs of a load on the given number of shards. If the users of a message are
// in several shards, each of these shards gets an event for the message.
func needsOn(l Load, shards int) Needs {
	messages := l.MessagesPerDay / day
	deliveries := messages * l.Members
	reads := deliveries * l.Reads
	n := Needs{Shards: shards, EventsPerSecond: messages + reads, ChangesPerSecond: deliveries + reads}
	copies := messages // events of messages per second, in all shards together
	if shards > 1 {
		copies *= touched(shards, l.Members)
	}

	event, walEvent, log := float64(bulkEvent), 0.0, float64(logBulk)
	if l.Single {
		event, walEvent, log = singleEvent, walSingle-walBulk, logSingle
	}
	named := deliveries // users per second that events of messages name
	cpu := event * reads
	wal := (walEvent + walBulk) * reads
	if l.Rooms {
		named = copies
		cpu += roomMessage * copies
		wal += walSingle * copies
	} else {
		cpu += event*copies + nextUser*(named-copies)
		wal += walEvent*copies + walBulk*named
	}
	calls := n.ChangesPerSecond * l.Webhooks
	if l.Rooms && l.Members > toldMembers {
		calls = reads * l.Webhooks
	}
	cpu += toldUser * calls
	if l.Users >= manyUsers*float64(shards) { // manyUsers is for one shard
		cpu *= 2
	}
	n.PostgresCores, n.BadgedCores = cpu*postgresPart*l.Peak, cpu*(1-postgresPart)*l.Peak
	n.WALPerSecond = wal * l.Peak

	n.Tables = l.Users * (userRow + conversation*l.Conversations)
	n.Keys = (keyBytes*(copies+reads) + keyNextUser*(named-copies)) * day * keyDays
	n.Log = (log*(copies+reads) + logNextUser*(named-copies)) * day * l.LogDays

	n.Connections = l.Users * l.Connected
	n.RedisPerSecond = n.ChangesPerSecond * l.Connected * l.Peak
	if l.Rooms { // one update for each partition; the number of connected members does not matter
		n.RedisPerSecond = (min(deliveries*l.Connected, copies) + reads*l.Connected) * l.Peak
	}
	n.GatewayBytes = n.Connections * connection
	n.Gateways = int(math.Ceil(n.Connections / PerGateway))
	n.PushesPerSecond = n.ChangesPerSecond * l.Push * (1 - l.Connected) * l.Peak
	n.CallsPerSecond = calls * l.Peak
	n.Ingesting = max(1, int(math.Ceil(n.EventsPerSecond*l.Peak/ingested)))
	return n
}
