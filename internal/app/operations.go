package app

import (
	"net/http"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/httpapi"
	"github.com/badged/badged/internal/keyring"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/web"
)

// openSampler adds the sampler, which stores this process's rates for the admin
// page.
func (a *App) openSampler(d *database) error {
	roles := make([]string, len(a.cfg.Roles))
	for i, r := range a.cfg.Roles {
		roles[i] = string(r)
	}
	cfg := admin.SamplerConfig{
		Pool: d.serving, Gatherer: a.registry,
		Process: admin.ProcessName(), Roles: roles, Logger: d.log,
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
	a.stageOf(d, "sampler", s.Run)
	return nil
}

// openOperations adds the admin page and its service. It returns nil if there
// can be no admin keys or this process lacks the role api.
func (a *App) openOperations(keys *keyring.Ring) (httpapi.Operations, error) {
	if !keys.HasAdmins() || !a.cfg.Has(config.RoleAPI) {
		return nil, nil //nolint:nilnil // no operations
	}
	var runners []*admin.Runner
	for _, d := range a.databases {
		runner, err := admin.NewRunner(admin.RunnerConfig{
			Pool: d.serving, Log: d.Log, Bus: a.bus, Process: admin.ProcessName(), Logger: d.log,
		})
		if err != nil {
			return nil, err
		}
		a.stageOf(d, "jobs", runner.Run)
		runners = append(runners, runner)
	}
	a.operators.Handle("/admin/", http.StripPrefix("/admin", web.Handler(web.Admin())))
	return operators.New(operators.Config{Cluster: a.cluster, Runners: runners, Wake: a.Wake, Append: a.publisher.Append}), nil
}
