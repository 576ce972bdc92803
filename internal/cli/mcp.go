package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/server/assistant"
	"github.com/badged/badged/internal/server/config"
)

type mcpCmd struct {
	config.Database `embed:""`
	AllowWrites     bool   `help:"Also offer tools that retry and discard dead letters. This requires --url and --admin-key." env:"-"`
	URL             string `name:"url" help:"With --allow-writes: URL of a running server, whose admin API makes the changes." placeholder:"URL"`
	AdminKey        string `help:"With --allow-writes: secret of an admin's key. The audit trail records the name of the key." placeholder:"SECRET"`
}

// Validate implements kong's validation.
func (c *mcpCmd) Validate() error {
	errs := []error{c.Database.Validate()}
	if c.AllowWrites && c.URL == "" {
		errs = append(errs, errors.New("--allow-writes requires --url (BADGED_URL)"))
	}
	if c.AllowWrites && c.AdminKey == "" {
		errs = append(errs, errors.New("--allow-writes requires --admin-key (BADGED_ADMIN_KEY)"))
	}
	return errors.Join(errs...)
}

// Run answers an assistant on standard input and output until the input ends.
func (c *mcpCmd) Run(ctx context.Context, streams Streams) error {
	cfg := assistant.Config{}
	if c.AllowWrites {
		operator, err := assistant.NewOperator(c.URL, c.AdminKey)
		if err != nil {
			return fmt.Errorf("--url: %w", err)
		}
		defer operator.Close()
		cfg.Operator = operator
	}
	cluster, closeCluster, err := connect.Follow(ctx, c.Database, streams.Err)
	if err != nil {
		return err
	}
	defer closeCluster()
	cfg.Cluster = cluster
	in, ok := streams.In.(io.ReadCloser)
	if !ok {
		in = io.NopCloser(streams.In)
	}
	return assistant.New(cfg).Run(ctx, in, openWriter{streams.Out})
}

// openWriter is standard output with a Close that does nothing, since standard output must stay
// open until the process ends.
type openWriter struct{ io.Writer }

// Close implements io.Closer.
func (openWriter) Close() error { return nil }
