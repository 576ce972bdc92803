package archives

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
)

// takenOver is the result of --take-over.
type takenOver struct {
	Archive string `json:"archive"`
	operations.ErasedAgain
}

// takeOverArguments has the arguments that the audit trail records for --take-over.
type takeOverArguments struct {
	Archive string `json:"archive"`
}

// TakeOver makes a database the owner of an archive. Then it repeats the erasures that the archive
// lists and the database has not completed.
func (k *Keys) TakeOver(ctx context.Context, out io.Writer, s *cluster.Database, location string, asJSON bool) (err error) {
	done := takenOver{Archive: s.Archive(location)}
	store, err := k.Store(done.Archive)
	if err != nil {
		return err
	}
	a, err := archive.Continue(ctx, store)
	if a, err = OrNone(ctx, s, a, err); err != nil || a == nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	err = operations.Audited(ctx, s.Pool, operations.OSUser(), "archive.take-over", takeOverArguments{done.Archive}, func(ctx context.Context) (any, error) {
		return nil, archiving.TakeOver(ctx, s.Pool, s.Log, a)
	})
	if err != nil {
		return err
	}
	if done.ErasedAgain, err = operations.EraseAgain(ctx, s, operations.OSUser(), a); err != nil {
		return fmt.Errorf("the archive belongs to this database now, but badged could not repeat all erasures that the archive lists: run the command again: %w", err)
	}
	if asJSON {
		return json.NewEncoder(out).Encode(done)
	}
	fmt.Fprintf(out, "the archive %s belongs to this database now\n", done.Archive)
	if done.Users > 0 {
		fmt.Fprintf(out, "%s erased again, since the archive lists the erasure\n", terminal.Counted(int64(done.Users), "user"))
	}
	if done.Gone > 0 {
		fmt.Fprintf(out, "badged has no data of %s who were erased\n", terminal.Counted(int64(done.Gone), "other user"))
	}
	return nil
}
