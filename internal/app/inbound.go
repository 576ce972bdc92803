package app

import (
	"context"

	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/inbound"
	"github.com/badged/badged/internal/memory"
)

// reservedFiles is how many open files are reserved besides those of clients
// and Postgres pools: Redis, jobs, logs, the key set and the Go runtime.
const reservedFiles = 64

// internalConnections limits the connections to the internal listener:
// Prometheus, probes, the admin page.
const internalConnections = 64

// The memory for bodies of requests, in bytes, if it is not configured.
const (
	defaultBodyMemory = 256 << 20
	mostBodyMemory    = 1 << 30
)

// bodyMemory is the memory for bodies of requests, in bytes.
func (a *App) bodyMemory() int64 {
	if given := a.cfg.BodyMemoryMiB; given > 0 {
		return int64(given) << 20
	}
	if limit, ok := memory.Limit("/"); ok {
		return min(max(limit/4, config.MinBodyMemoryMiB<<20), mostBodyMemory)
	}
	return defaultBodyMemory
}

// limitConnections sets the limits of client connections.
func (a *App) limitConnections(ctx context.Context) {
	reserved := max(1, len(a.cfg.Shards))*a.cfg.PostgresConnections() + reservedFiles
	if a.internal != nil {
		reserved += internalConnections
	}
	a.limits = inbound.LimitsFor(inbound.Files(), reserved, a.cfg.MaxUnauthenticated, a.cfg.TrustedProxies)
	most := a.limits.Authenticated()
	if a.cfg.MaxConnections > most {
		a.log.WarnContext(ctx, "--max-connections exceeds the limit of open files; raise that limit (ulimit -n, LimitNOFILE)",
			"max_connections", a.cfg.MaxConnections, "possible", most)
	}
	if a.cfg.MaxConnections == 0 || a.cfg.MaxConnections > most {
		a.cfg.MaxConnections = most
	}
}
