package config

// The default maximum sizes of a process's pools to one Postgres server; see [Database.PoolSize].
const (
	ServingConns int32 = 16
	// WatchingConns is the size of the pool for queries that must not wait until requests release
	// connections: readiness, revocations, and the measurement of the lag.
	WatchingConns int32 = 2
	FoldingConns  int32 = 12
	// NotifyingConns is small, since the notifier runs few statements: most process many rows.
	NotifyingConns int32 = 8
)

// Connections has the maximum numbers of connections that a process opens to one database: the
// sizes of the three main pools, and the number of all other connections (Others). A pool that the
// roles of the process do not use has the size 0.
type Connections struct {
	Serving, Folding, Notifying int32
	// Others counts the connections of the watching pool, the sessions by which projector and
	// notifier own partitions, the sessions that read brokers, and the session of the sweep that
	// expires conversations.
	Others int32
}

// Connections returns how many connections the process would open to a database that has no
// connection limits.
func (s *Server) Connections(d NamedDatabase) Connections {
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

// Least returns the smallest sizes of the pools with which the process can still work.
func (c Connections) Least() Connections {
	for _, pool := range []*int32{&c.Serving, &c.Folding, &c.Notifying} {
		*pool = min(*pool, leastConns)
	}
	return c
}

// Within reduces the sizes of the pools, so that the process opens at most n connections; n must be
// at least the Sum of [Connections.Least]. Within starts with the sizes that Least returns. It adds
// one connection to each pool in turn, first to the pool for folding.
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

// PostgresConnections returns the maximum number of connections that this process opens to the
// first or only database. The maximum of another database may differ: it depends on
// pool_max_conns in its URL, and on the number of databases on the same server.
func (s *Server) PostgresConnections() int {
	first := NamedDatabase{}
	if all, err := s.All(); err == nil && len(all) > 0 {
		first = all[0]
	}
	return s.Connections(first).Sum()
}
