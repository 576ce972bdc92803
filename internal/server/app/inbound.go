package app

import (
	"context"
	"fmt"

	"github.com/badged/badged/internal/base/memory"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/inbound"
)

// reservedFiles is how many open files are reserved for uses other than clients and Postgres
// pools: Redis, jobs, logs, the key set and the Go runtime.
const reservedFiles = 64

// internalConnections limits the connections to the internal listener, from Prometheus, probes
// and the admin page.
const internalConnections = 64

// internalLimits are the limits of the internal listener. Authenticated requests get three
// quarters of its connections, so that probes and new operators can always connect. One key
// gets half of the connections.
func internalLimits() inbound.Limits {
	return inbound.Limits{
		Connections: internalConnections, Unauthenticated: internalConnections,
		Keys: inbound.ShareLimits{All: internalConnections * 3 / 4, PerHolder: internalConnections / 2},
	}
}

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

// limitsFor returns the limits of client connections. It fails if the limit of open files is
// too small to serve with these settings.
func limitsFor(cfg *config.Server) (inbound.Limits, error) {
	files, reserved := inbound.Files(), max(1, len(cfg.Shards))*cfg.PostgresConnections()+reservedFiles
	if cfg.InternalListen != "" {
		reserved += internalConnections
	}
	if needs := reserved + inbound.MinConnections; files < needs {
		return inbound.Limits{}, fmt.Errorf("a process may have %d open files here, and with these settings it needs %d: %d for databases and itself, and %d for clients; raise the limit (ulimit -n, LimitNOFILE)",
			files, needs, reserved, inbound.MinConnections)
	}
	return inbound.LimitsFor(files, reserved, cfg.MaxUnauthenticated, cfg.TrustedProxies), nil
}

// LimitRisks returns warnings about settings that exceed the limits of open files and of
// memory.
func LimitRisks(cfg config.Server) (risks []string) {
	limits, err := limitsFor(&cfg) // Check returns the error
	if err == nil && cfg.MaxConnections > limits.Streams() {
		risks = append(risks, fmt.Sprintf("--max-connections %d: the limit of open files here allows %d; raise that limit (ulimit -n, LimitNOFILE)", cfg.MaxConnections, limits.Streams()))
	}
	if bytes, ok := memory.Limit("/"); ok && int64(cfg.BodyMemoryMiB)<<20 > bytes/2 {
		risks = append(risks, fmt.Sprintf("--body-memory-mib %d: the memory limit here is %d MiB: bodies of requests may end the process", cfg.BodyMemoryMiB, bytes>>20))
	}
	return risks
}

// limitConnections sets the limits of client connections.
func (a *App) limitConnections(ctx context.Context) (err error) {
	if a.limits, err = limitsFor(&a.cfg); err != nil {
		return err
	}
	for _, risk := range LimitRisks(a.cfg) {
		a.log.WarnContext(ctx, risk)
	}
	most := a.limits.Streams()
	if a.cfg.MaxConnections == 0 || a.cfg.MaxConnections > most {
		a.cfg.MaxConnections = most
	}
	return nil
}
