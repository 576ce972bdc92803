package config

// The default maximum sizes of the pools to a server, see [Database.PoolSize].
const (
	ServingConns int32 = 16
	// WatchingConns is for queries that must not wait behind requests: for readiness, for
	// revocations, and for measuring the lag.
	WatchingConns int32 = 2
	FoldingConns  int32 = 12
	// NotifyingConns are few: most statements of the notifier process many rows.
	NotifyingConns int32 = 8
)

// Connections are the maximum numbers of connections of a process to one database: the sizes
// of its three main pools, and Others. A pool has size 0 if the process does not have its
// role.
type Connections struct {
	Serving, Folding, Notifying int32
	// Others are the watching pool, the sessions that own partitions or read brokers, and the
	// session of the sweep that expires conversations.
	Others int32
}

// Connections returns the most connections to a database, unless the database permits fewer.
func (s *Server) Connections(d Shard) Connections {
	c := Connections{Serving: s.PoolSize(d, ServingConns), Others: WatchingConns}
	if s.Has(RoleProjector) {
		c.Folding = s.PoolSize(d, FoldingConns)
		c.Others++
		if len(s.Expire) > 0 {
			c.Others++
		}
	}
	if s.Has(RoleNotifier) {
		c.Notifying = s.PoolSize(d, NotifyingConns)
		c.Others++
	}
	if s.Has(RoleIngest) {
		c.Others += int32(len(s.From)) //nolint:gosec // there are few brokers
	}
	return c
}

// Sum returns the number of all connections.
func (c Connections) Sum() int { return int(c.Serving + c.Folding + c.Notifying + c.Others) }

// Least returns the minimum with which a process still works.
func (c Connections) Least() Connections {
	for _, pool := range []*int32{&c.Serving, &c.Folding, &c.Notifying} {
		*pool = min(*pool, leastConns)
	}
	return c
}

// Within shrinks the pools until they have at most n connections together, but not below
// Least. It gives spare connections to the pools in turn, folding first.
func (c Connections) Within(n int) Connections {
	if c.Sum() <= n {
		return c
	}
	most, c := c, c.Least()
	for grown := true; grown && c.Sum() < n; {
		grown = false
		for _, pool := range []struct{ has, most *int32 }{{&c.Folding, &most.Folding}, {&c.Serving, &most.Serving}, {&c.Notifying, &most.Notifying}} {
			if *pool.has < *pool.most && c.Sum() < n {
				*pool.has++
				grown = true
			}
		}
	}
	return c
}

// PostgresConnections returns the maximum number of connections that this process opens to
// Postgres. With several shards, the number applies to each shard that is configured like the
// first. pool_max_conns in a URL changes the number.
func (s *Server) PostgresConnections() int {
	first := Shard{}
	if all, err := s.All(); err == nil && len(all) > 0 {
		first = all[0]
	}
	return s.Connections(first).Sum()
}
