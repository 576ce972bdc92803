// Package sizing estimates what a chat of a given size takes, from what docs/benchmarks.md
// and docs/operations.md measured on two cores.
package sizing

import (
	"errors"
	"fmt"
	"math"
)

// What was measured. Times are in seconds of CPU, sizes in bytes.
const (
	bulkEvent    = 19e-6    // publishing and folding an event in bulk
	singleEvent  = 540e-6   // the same, published alone
	nextUser     = 10.6e-6  // each user beyond the first that an event names
	postgresPart = 0.45     // of these, what Postgres takes
	manyUsers    = 3e6      // from here on the above takes twice as much
	walBulk      = 360      // of each user that an event changes
	walSingle    = 1360     // of an event published alone
	logBulk      = 35       // an event in the log
	logSingle    = 360      // the same, published alone
	logNextUser  = 5        // each user beyond the first
	keyBytes     = 18       // a remembered event
	keyNextUser  = 8        // each user beyond the first
	keyDays      = 14 * 1.5 // the longest that keys are remembered
	userRow      = 470
	conversation = 300
	connection   = 11 << 10
	// PerGateway is the most connections of one process that were measured.
	PerGateway = 15_000
)

const day = 86400

// Load is what a chat does.
type Load struct {
	Users          float64 `json:"users"`
	MessagesPerDay float64 `json:"messages_per_day"`
	// Members is how many users a message goes to, Reads how many reads follow each of
	// these deliveries.
	Members float64 `json:"members"`
	Reads   float64 `json:"reads"`
	// Conversations is how many a user has.
	Conversations float64 `json:"conversations"`
	// Connected is the share of the users who are connected at once.
	Connected float64 `json:"connected"`
	// Peak is the busiest second over the average.
	Peak float64 `json:"peak"`
	// Single is set if events are published one at a time.
	Single bool `json:"single"`
	// LogDays is how long the log is kept.
	LogDays float64 `json:"log_days"`
	// Cores are those of a Postgres server.
	Cores float64 `json:"cores"`
}

// Check returns what is wrong with a load, or nil.
func (l Load) Check() error {
	var errs []error
	for _, v := range []struct {
		name        string
		value       float64
		least, most float64
	}{
		{"--users", l.Users, 1, 1e11},
		{"--messages-per-day", l.MessagesPerDay, 0, 1e15},
		{"--members", l.Members, 1, 10_000},
		{"--reads", l.Reads, 0, 100},
		{"--conversations", l.Conversations, 0, 1e6},
		{"--connected", l.Connected, 0, 1},
		{"--peak", l.Peak, 1, 1000},
		{"--log-days", l.LogDays, 0, 1e5},
		{"--cores", l.Cores, 1, 1024},
	} {
		if !(v.value >= v.least && v.value <= v.most) { // also if it is no number
			errs = append(errs, fmt.Errorf("%s must be from %g to %g, is %g", v.name, v.least, v.most, v.value))
		}
	}
	return errors.Join(errs...)
}

// Needs are what a load takes.
type Needs struct {
	// EventsPerSecond and ChangesPerSecond are those of the average second; a change is an
	// event for one user.
	EventsPerSecond  float64 `json:"events_per_second"`
	ChangesPerSecond float64 `json:"changes_per_second"`
	// PostgresCores and BadgedCores are fully used in the busiest second.
	PostgresCores float64 `json:"postgres_cores"`
	BadgedCores   float64 `json:"badged_cores"`
	// Servers is how many Postgres servers that is. badged uses one.
	Servers int `json:"postgres_servers"`
	// WALPerSecond is in bytes, in the busiest second.
	WALPerSecond float64 `json:"wal_bytes_per_second"`
	// Tables, Keys and Log are bytes of disk.
	Tables float64 `json:"table_bytes"`
	Keys   float64 `json:"key_bytes"`
	Log    float64 `json:"log_bytes"`
	// RedisPerSecond is how many updates of connected users Redis passes on, at most, in
	// the busiest second.
	RedisPerSecond float64 `json:"redis_messages_per_second"`
	Connections    float64 `json:"connections"`
	// GatewayBytes is the memory of all idle connections, and Gateways the processes.
	GatewayBytes float64 `json:"gateway_bytes"`
	Gateways     int     `json:"gateways"`
}

// Estimate returns what a load takes.
func Estimate(l Load) Needs {
	messages := l.MessagesPerDay / day
	deliveries := messages * l.Members
	reads := deliveries * l.Reads
	n := Needs{EventsPerSecond: messages + reads, ChangesPerSecond: deliveries + reads}
	more := n.ChangesPerSecond - n.EventsPerSecond // users beyond the first of an event

	event, wal, log := bulkEvent, walBulk*n.ChangesPerSecond, float64(logBulk)
	if l.Single {
		event, wal, log = singleEvent, walSingle*n.EventsPerSecond+walBulk*more, logSingle
	}
	cpu := event*n.EventsPerSecond + nextUser*more
	if l.Users >= manyUsers {
		cpu *= 2
	}
	n.PostgresCores, n.BadgedCores = cpu*postgresPart*l.Peak, cpu*(1-postgresPart)*l.Peak
	n.Servers = max(1, int(math.Ceil(n.PostgresCores/l.Cores)))
	n.WALPerSecond = wal * l.Peak

	n.Tables = l.Users * (userRow + conversation*l.Conversations)
	n.Keys = (keyBytes*n.EventsPerSecond + keyNextUser*more) * day * keyDays
	n.Log = (log*n.EventsPerSecond + logNextUser*more) * day * l.LogDays

	n.Connections = l.Users * l.Connected
	n.RedisPerSecond = n.ChangesPerSecond * l.Connected * l.Peak
	n.GatewayBytes = n.Connections * connection
	n.Gateways = int(math.Ceil(n.Connections / PerGateway))
	return n
}
