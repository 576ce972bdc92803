package archives

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/archiving"
)

// takenOver is what --take-over has done.
type takenOver struct {
	Archive string `json:"archive"`
	admin.ErasedAgain
}

// takeOverArguments are the arguments of --take-over in the audit trail.
type takeOverArguments struct {
	Archive string `json:"archive"`
}

// TakeOver makes the archive that of a shard, and erases again who was erased since.
func (k *Keys) TakeOver(ctx context.Context, out io.Writer, s *shards.Shard, location string, asJSON bool) (err error) {
	done := takenOver{Archive: operators.ArchiveOf(s, location)}
	store, err := k.Store(done.Archive)
	if err != nil {
		return err
	}
	a, err := archive.Continue(ctx, store)
	if a, err = OrNone(ctx, s, a, err); err != nil || a == nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	err = admin.Audited(ctx, s.Pool, admin.OSUser(), "archive.take-over", takeOverArguments{done.Archive}, func(ctx context.Context) (any, error) {
		return nil, archiving.TakeOver(ctx, s.Pool, s.Log, a)
	})
	if err != nil {
		return err
	}
	if done.ErasedAgain, err = admin.EraseAgain(ctx, s.Pool, s.Log, admin.OSUser(), a); err != nil {
		return fmt.Errorf("the archive belongs to this database now, but not all users are erased again who were erased since: run the command once more: %w", err)
	}
	if asJSON {
		return json.NewEncoder(out).Encode(done)
	}
	fmt.Fprintf(out, "the archive %s belongs to this database now\n", done.Archive)
	if done.Users > 0 {
		fmt.Fprintf(out, "%s erased again, since the archive lists the erasure\n", terminal.Counted(int64(done.Users), "user"))
	}
	if done.Gone > 0 {
		fmt.Fprintf(out, "badged holds nothing of %s who were erased\n", terminal.Counted(int64(done.Gone), "other user"))
	}
	return nil
}
