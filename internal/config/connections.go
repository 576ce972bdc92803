package config

// The most connections of each pool to a server, see [Database.PoolSize].
const (
	ServingConns int32 = 16
	// WatchingConns are for what must not wait behind requests: readiness, revocations,
	// and how far folding is behind.
	WatchingConns int32 = 2
	FoldingConns  int32 = 12
	// NotifyingConns are few: most statements of the notifier have many rows.
	NotifyingConns int32 = 8
)

// Connections are the most connections that a process opens to a database: of its pools, 0
// for those that its roles do not need, and others.
type Connections struct {
	Serving, Folding, Notifying int32
	// Others are those that watch, hold partitions or brokers, and the sweep that expires.
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

// Sum returns how many these are.
func (c Connections) Sum() int { return int(c.Serving + c.Folding + c.Notifying + c.Others) }

// Least returns the fewest with which a process works.
func (c Connections) Least() Connections {
	for _, pool := range []*int32{&c.Serving, &c.Folding, &c.Notifying} {
		*pool = min(*pool, leastConns)
	}
	return c
}

// Within returns pools that have at most n connections together, and Least otherwise. What
// folds gets the first of those that there are.
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

// PostgresConnections returns the most connections that this process opens to
// Postgres, or to each shard on a server like the first one's, unless the database URL sets
// another limit.
func (s *Server) PostgresConnections() int {
	first := Shard{}
	if all, err := s.All(); err == nil && len(all) > 0 {
		first = all[0]
	}
	return s.Connections(first).Sum()
}
