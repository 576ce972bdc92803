package admin

import (
	"context"
	"io"

	"github.com/badged/badged/projector/erasure"
)

// maxExports is how many exports run at a time in a process: each reads the log.
const maxExports = 2

// Export writes everything that badged holds of a user, except what is in archives,
// as lines of JSON; see [erasure.Write]. Two run at a time; others wait.
func (s *Service) Export(ctx context.Context, userID string, w io.Writer) error {
	select {
	case s.exports <- struct{}{}:
		defer func() { <-s.exports }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := erasure.Write(ctx, w, erasure.ExportConfig{Pool: s.pool, Log: s.log, UserID: userID})
	return err
}
