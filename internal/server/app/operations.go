package app

import (
	"net/http"

	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/internal/server/keyring"
	"github.com/badged/badged/web"
)

// openSampler adds the sampler, which stores the counters of this process for the admin page.
func (a *App) openSampler(d *database) error {
	roles := make([]string, len(a.cfg.Roles))
	for i, r := range a.cfg.Roles {
		roles[i] = string(r)
	}
	cfg := operations.SamplerConfig{
		Pool: d.serving, Gatherer: a.registry,
		Process: operations.ProcessName(), Roles: roles, Logger: d.log,
	}
	if a.cfg.Has(config.RoleGateway) {
		cfg.Limits = &operations.Limits{
			Connections: a.cfg.MaxConnections, UserConnections: a.cfg.MaxUserConnections,
			Connects: a.cfg.ConnectsPerSecond, Commands: a.cfg.CommandsPerSecond,
		}
	}
	s, err := operations.NewSampler(cfg)
	if err != nil {
		return err
	}
	a.stageOf(d, "sampler", s.Run)
	return nil
}

// openOperations adds the admin page and its operations. It returns nil if the configuration has
// neither admin keys nor a file of keys, or if this process does not have the role api.
func (a *App) openOperations(keys *keyring.Ring) (httpapi.Operations, error) {
	if !keys.HasAdmins() || !a.cfg.Has(config.RoleAPI) {
		return nil, nil //nolint:nilnil // no operations
	}
	ops := operations.New(operations.Config{Cluster: a.cluster, Append: a.publisher.Append, Wake: a.Wake, Bus: a.bus, Logger: a.log})
	a.stage("jobs", ops.Run)
	a.operators.Handle("/admin/", http.StripPrefix("/admin", web.Handler(web.Admin())))
	return ops, nil
}
