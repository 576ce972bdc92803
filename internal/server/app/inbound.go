package app

import (
	"context"
	"fmt"

	"github.com/badged/badged/internal/base/memory"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/inbound"
)

// reservedFiles is the number of open files that are reserved for uses other than clients and
// pools of Postgres: Redis, jobs, logs, the key set and the Go runtime.
const reservedFiles = 64

// internalConnections limits the connections to the internal listener, which serves Prometheus,
// probes and the admin page.
const internalConnections = 64

// internalLimits returns the limits of the internal listener. Authenticated requests may use at
// most three quarters of the connections, and one key at most half of them, so that probes and
// further operators can always connect.
func internalLimits() inbound.Limits {
	return inbound.Limits{
		Connections: internalConnections, Unauthenticated: internalConnections,
		Keys: inbound.ShareLimits{All: internalConnections * 3 / 4, PerHolder: internalConnections / 2},
	}
}

// These constants, in bytes, are used if the memory for the bodies of requests is not configured. A
// process without a memory limit uses defaultBodyMemory. A process with a memory limit uses a
// quarter of the limit, but at most mostBodyMemory.
const (
	defaultBodyMemory = 256 << 20
	mostBodyMemory    = 1 << 30
)

// bodyMemory returns the memory for bodies of requests, in bytes. By default it is a quarter of the
// memory limit of the process, but at least config.MinBodyMemoryMiB and at most mostBodyMemory.
func (a *App) bodyMemory() int64 {
	if given := a.cfg.BodyMemoryMiB; given > 0 {
		return int64(given) << 20
	}
	if limit, ok := memory.Limit("/"); ok {
		return min(max(limit/4, config.MinBodyMemoryMiB<<20), mostBodyMemory)
	}
	return defaultBodyMemory
}

// limitsFor returns the limits of client connections. It fails if the process may not open as many
// files as cfg requires.
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

// LimitRisks returns warnings about settings that are too great for the limits of open files and
// of memory.
func LimitRisks(cfg config.Server) (risks []string) {
	limits, err := limitsFor(&cfg) // Check returns the error
	if err == nil && cfg.MaxConnections > limits.Streams() {
		risks = append(risks, fmt.Sprintf("--max-connections %d: the limit of open files here allows %d; raise that limit (ulimit -n, LimitNOFILE)", cfg.MaxConnections, limits.Streams()))
	}
	if bytes, ok := memory.Limit("/"); ok && int64(cfg.BodyMemoryMiB)<<20 > bytes/2 {
		risks = append(risks, fmt.Sprintf("--body-memory-mib %d: the memory limit here is %d MiB: request bodies may use up the memory, so that the process is killed", cfg.BodyMemoryMiB, bytes>>20))
	}
	return risks
}

// limitConnections sets the limits of client connections. It lowers MaxConnections to what the
// limit of open files allows.
func (a *App) limitConnections(ctx context.Context) (err error) {
	if a.limits, err = limitsFor(&a.cfg); err != nil {
		return err
	}
	for _, risk := range LimitRisks(a.cfg) {
		a.log.WarnContext(ctx, risk)
	}
	limit := a.limits.Streams()
	if a.cfg.MaxConnections == 0 || a.cfg.MaxConnections > limit {
		a.cfg.MaxConnections = limit
	}
	return nil
}
