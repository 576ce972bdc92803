package archives

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/operators"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/archiving"
)

// giveUpArguments are the arguments of --give-up in the audit trail.
type giveUpArguments struct {
	Archive string   `json:"archive"`
	Files   []string `json:"files"`
}

// GiveUp gives up files that are lost of the archives of all shards. It fails if one of the
// names is of no file.
func (k *Keys) GiveUp(ctx context.Context, out io.Writer, cluster *shards.Cluster, location string, names []string, asJSON bool) error {
	var files []archive.FileNames
	for _, name := range names {
		n, err := archive.ParseFileNames(name)
		if err != nil {
			return fmt.Errorf("--give-up: %w", err)
		}
		files = append(files, n)
	}
	sum := archiving.GivenUp{Files: []string{}}
	err := operators.Each(ctx, cluster, func(s *shards.Shard) error {
		place := operators.ArchiveOf(s, location)
		store, err := k.Store(place)
		if err != nil {
			return err
		}
		return admin.Audited(ctx, s.Pool, admin.OSUser(), "archive.give-up", giveUpArguments{place, names}, func(ctx context.Context) (any, error) {
			done, err := archiving.GiveUp(ctx, archiving.GiveUpConfig{Pool: s.Pool, Log: s.Log, Store: store, Files: files})
			if err == nil {
				sum.Files, sum.Events = append(sum.Files, done.Files...), sum.Events+done.Events
			}
			return done, err
		})
	})
	if err != nil {
		return err
	}
	if unknown := slices.DeleteFunc(files, func(n archive.FileNames) bool {
		return slices.ContainsFunc(sum.Files, func(name string) bool { return n.Has(archive.File{Name: name}) })
	}); len(unknown) > 0 {
		return fmt.Errorf("--give-up: no archived file has the name %s", unknown[0])
	}
	if asJSON {
		return json.NewEncoder(out).Encode(sum)
	}
	_, err = fmt.Fprintf(out, "gave up %s in %s: %s\nBadges stay as they are. What was in these files cannot be listed, restored or erased any more: delete copies of them, which may name users who are erased.\n",
		terminal.Counted(sum.Events, "event"), terminal.Counted(int64(len(sum.Files)), "file"), strings.Join(sum.Files, ", "))
	return err
}

// WarnLost says which files of the archive of a shard were given up, and what follows.
func WarnLost(ctx context.Context, w io.Writer, s *shards.Shard, follows string) error {
	all, err := archiving.AllLost(ctx, s.Pool)
	for _, lost := range all {
		fmt.Fprintf(w, "badged: %sof partition %d, %s in %s of the archive were given up: %s\n", connect.Prefix(s.Name), lost.Partition,
			terminal.Counted(lost.Events, "event"), terminal.Counted(int64(lost.Files), "file"), follows)
	}
	return err
}
