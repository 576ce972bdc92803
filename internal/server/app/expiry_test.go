package app

import (
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/server/config"
)

// The sweep runs in processes with the role projector if a limit is set, and
// not otherwise.
func TestExpiryRunsWithTheProjector(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*config.Server)
		sweeps bool
		// ends is true if levels end.
		ends bool
	}{
		{"no limit", func(*config.Server) {}, false, true},
		{"a limit", func(cfg *config.Server) { cfg.Expire = []string{"chat=168h"} }, true, true},
		{"a limit, without the projector", func(cfg *config.Server) {
			cfg.Expire, cfg.Roles, cfg.RedisURL = []string{"chat=168h"}, []config.Role{config.RoleAPI}, "redis://127.0.0.1:1"
		}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := settings(pgtest.NewDB(t, migrated()))
			test.change(&cfg)
			s := run(t, open(t, cfg))
			if !test.sweeps {
				page := s.get(t, "/metrics").body
				if ends := strings.Contains(page, "\nbadged_expiry_levels_total 0\n"); ends != test.ends {
					t.Errorf("levels end: %v, want %v", ends, test.ends)
				}
				if test.ends && !strings.Contains(page, "\nbadged_expiry_sweep_seconds_count 0\n") {
					t.Errorf("something sweeps:\n%s", page)
				}
				return
			}
			eventually(t, "a sweep", func() bool {
				return strings.Contains(s.get(t, "/metrics").body, "\nbadged_expiry_sweep_seconds_count 1\n")
			})
		})
	}
}
