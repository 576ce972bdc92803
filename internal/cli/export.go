package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/archive"
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
	cluster, err := openShards(ctx, c.Database)
	if err != nil {
		return err
	}
	defer cluster.Close()
	home, err := operators.Of(cluster, c.User)
	if err != nil {
		return err
	}
	archives := func(s *shards.Shard) (*archive.Archive, error) { return from.open(ctx, s) }
	out := bufio.NewWriter(streams.Out)
	return admin.Audited(ctx, home.Pool, admin.OSUser(), admin.ReadExport, exportArguments{c.User, c.Archive}, func(ctx context.Context) (any, error) {
		n, err := operators.Export(ctx, cluster, c.User, archives, out)
		return exportResult{n}, errors.Join(err, out.Flush())
	})
}
