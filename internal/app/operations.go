package app

import (
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/httpapi"
	"github.com/badged/badged/internal/keyring"
	"github.com/badged/badged/web"
)

// openSampler adds the sampler, which stores this process's rates for the admin
// page.
func (a *App) openSampler(pool *pgxpool.Pool) error {
	roles := make([]string, len(a.cfg.Roles))
	for i, r := range a.cfg.Roles {
		roles[i] = string(r)
	}
	cfg := admin.SamplerConfig{
		Pool: pool, Gatherer: a.registry, Partitions: a.eventLog.Partitions(),
		Process: admin.ProcessName(), Roles: roles, Logger: a.log,
	}
	if a.cfg.Has(config.RoleGateway) {
		cfg.Limits = &admin.Limits{
			Connections: a.cfg.MaxConnections, UserConnections: a.cfg.MaxUserConnections,
			Connects: a.cfg.ConnectsPerSecond, Commands: a.cfg.CommandsPerSecond,
		}
	}
	s, err := admin.NewSampler(cfg)
	if err != nil {
		return err
	}
	a.stage("sampler", s.Run)
	return nil
}

// openOperations adds the admin page and its service. It returns nil if there
// can be no admin keys or this process lacks the role api.
func (a *App) openOperations(pool *pgxpool.Pool, keys *keyring.Ring) (httpapi.Operations, error) {
	if !keys.HasAdmins() || !a.cfg.Has(config.RoleAPI) {
		return nil, nil //nolint:nilnil // no operations
	}
	runner, err := admin.NewRunner(admin.RunnerConfig{
		Pool: pool, Log: a.eventLog, Bus: a.bus, Process: admin.ProcessName(), Logger: a.log,
	})
	if err != nil {
		return nil, err
	}
	a.stage("jobs", runner.Run)
	a.operators.Handle("/admin/", http.StripPrefix("/admin", web.Handler(web.Admin())))
	return admin.NewService(pool, a.eventLog, runner, a.Wake), nil
}
