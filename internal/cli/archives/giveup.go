package archives

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/badged/badged/internal/cli/connect"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/archiving"
)

// giveUpArguments has the arguments that the audit trail records for --give-up.
type giveUpArguments struct {
	Archive string   `json:"archive"`
	Files   []string `json:"files"`
}

// GiveUp marks missing or damaged files in the archives of all databases as lost, so that
// archiving and erasing continue without these files. It fails if a name matches no file.
func (k *Keys) GiveUp(ctx context.Context, out io.Writer, dbs *cluster.Cluster, location string, names []string, asJSON bool) error {
	var files []archive.FileNames
	for _, name := range names {
		n, err := archive.ParseFileNames(name)
		if err != nil {
			return fmt.Errorf("--give-up: %w", err)
		}
		files = append(files, n)
	}
	sum := archiving.GivenUp{Files: []string{}}
	err := dbs.Each(ctx, func(s *cluster.Database) error {
		place := s.Archive(location)
		store, err := k.Store(place)
		if err != nil {
			return err
		}
		return operations.Audited(ctx, s.Pool, operations.OSUser(), "archive.give-up", giveUpArguments{place, names}, func(ctx context.Context) (any, error) {
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
	_, err = fmt.Fprintf(out, "gave up %s in %s: %s\nBadges do not change. The events of these files cannot be listed, restored or erased any more: delete copies of the files, which may name erased users.\n",
		terminal.Counted(sum.Events, "event"), terminal.Counted(int64(len(sum.Files)), "file"), strings.Join(sum.Files, ", "))
	return err
}

// WarnLost prints how many files and events of each partition an operator has declared lost in the
// archive of a database. The text `follows`, the end of each line, says what this means.
func WarnLost(ctx context.Context, w io.Writer, s *cluster.Database, follows string) error {
	all, err := archiving.AllLost(ctx, s.Pool)
	for _, lost := range all {
		fmt.Fprintf(w, "badged: %sin partition %d, %s in %s of the archive were given up: %s\n", connect.Prefix(s.Name), lost.Partition,
			terminal.Counted(lost.Events, "event"), terminal.Counted(int64(lost.Files), "file"), follows)
	}
	return err
}
