package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/projector/erasure"
)

type userExportCmd struct {
	config.Database `embed:""`
	User            string `arg:"" help:"Id of the user."`
	archiveKeys     `embed:""`
	Archive         string `help:"Archive, a directory or s3://bucket/prefix: export archived events too." placeholder:"DIR" env:"-"`
}

// exportArguments are the arguments in the audit trail.
type exportArguments struct {
	User    string `json:"user"`
	Archive string `json:"archive,omitempty"`
}

// exportResult is the result in the audit trail.
type exportResult struct {
	Holdings int `json:"holdings"`
}

// Run prints everything that badged holds of a user.
func (c *userExportCmd) Run(ctx context.Context, streams Streams) error {
	if reason := events.CheckID(c.User); reason != "" {
		return fmt.Errorf("user id %s", reason)
	}
	from := archived{Archive: c.Archive, archiveKeys: c.archiveKeys}
	archive, err := from.open(ctx)
	if err != nil {
		return err
	}
	pool, log, err := openDatabase(ctx, c.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	out := bufio.NewWriter(streams.Out)
	cfg := erasure.ExportConfig{Pool: pool, Log: log, UserID: c.User, Archive: archive}
	return admin.Audited(ctx, pool, admin.OSUser(), admin.ReadExport, exportArguments{c.User, c.Archive}, func(ctx context.Context) (any, error) {
		n, err := erasure.Write(ctx, cfg, out)
		return exportResult{n}, errors.Join(err, out.Flush())
	})
}
