package embedpg

import (
	"fmt"
	"maps"
	"slices"
)

// defaults suit a server that shares a developer's machine and gets short
// transactions. Memory is allocated only as it is used.
func defaults() map[string]string {
	return map[string]string{
		// The default of 128MB halves the rate of folding.
		"shared_buffers": "512MB",
		// Checkpoints cause full-page writes; fewer of them cost disk space
		// and a longer recovery, both bounded by this size.
		"max_wal_size":       "2GB",
		"checkpoint_timeout": "15min",
		// Solid state drives: random reads cost about as much as sequential
		// ones.
		"random_page_cost": "1.1",
		// Compiling a query costs more than running any of ours.
		"jit": "off",
		// Set explicitly: commits must be durable.
		"fsync":              "on",
		"full_page_writes":   "on",
		"synchronous_commit": "on",
		// Independent of the machine's clock and language, because the log is
		// parsed.
		"timezone":    "UTC",
		"lc_messages": "C",
	}
}

// fixed are the settings that keep the server private and its log readable.
func fixed(socketDir string) map[string]string {
	return map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": socketDir,
		"unix_socket_permissions": "0700",
		"log_destination":         "stderr",
		"logging_collector":       "off",
		"log_line_prefix":         "",
	}
}

// checkSettings refuses settings that this package fixes.
func checkSettings(settings map[string]string) error {
	reserved := fixed("")
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if _, ok := reserved[name]; ok {
			return fmt.Errorf("setting %s of a private server is fixed", name)
		}
	}
	return nil
}

// arguments turns all settings into arguments of postgres, in a stable order.
func (s *Server) arguments() []string {
	all := defaults()
	if s.cfg.DataDir == "" {
		// Shared memory in the data directory, so that it goes with the data
		// after a crash.
		all["dynamic_shared_memory_type"] = "mmap"
	}
	maps.Copy(all, s.cfg.Settings)
	maps.Copy(all, fixed(s.tempDir))
	args := []string{"-D", s.pgdata}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}
