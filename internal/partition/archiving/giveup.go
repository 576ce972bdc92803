package archiving

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/claims"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
)

// GiveUpConfig configures GiveUp. All fields are required.
type GiveUpConfig struct {
	Pool  *pgxpool.Pool
	Log   *events.Log
	Store archive.Store
	// Files select the lost files. GiveUp ignores files of partitions that other databases hold.
	Files []archive.FileNames
}

// GivenUp is the result of GiveUp for one database.
type GivenUp struct {
	// Files are the names of the files that the call declared lost.
	Files []string `json:"files"`
	// Events is the number of events in these files.
	Events int64 `json:"events"`
}

// GiveUp declares missing or damaged files of an archive lost (given up), so that archiving and
// erasing can continue without the files. The badges of users do not change, since the baseline
// (the state at the end of the archive) includes the lost events. But the partition can no longer
// be replayed from its first event. If the whole archive is lost, GiveUp creates a new archive.
//
// GiveUp checks all files in cfg.Files before it changes anything, and fails if one of them is
// intact. If GiveUp fails while it writes, a repeated call completes the changes.
func GiveUp(ctx context.Context, cfg GiveUpConfig) (done GivenUp, err error) {
	job, err := rebuild.NewJob(ctx, rebuild.Config{Pool: cfg.Pool, Log: cfg.Log}, "badged archive")
	if err != nil {
		return done, err
	}
	defer job.Close(ctx)
	id, archived, err := identity(ctx, job.Conn)
	if err != nil || archived == 0 {
		return done, err
	}
	a, err := archive.Continue(ctx, cfg.Store)
	created := errors.Is(err, archive.ErrNone)
	if created {
		a, err = archive.Create(ctx, cfg.Store, id, cfg.Log.Partitions())
	}
	if err != nil {
		return done, err
	}
	defer func() {
		if created {
			err = errors.Join(err, a.Discard(context.WithoutCancel(ctx)))
		}
		err = errors.Join(err, a.Close())
	}()
	if err := claims.Check(ctx, job.Conn, a); err != nil {
		return done, err
	}
	files := map[int][]archive.File{} // all files of the partitions with lost files
	for _, p := range job.Held {
		all, lost, err := cfg.lost(ctx, job, a, p)
		if err != nil {
			return done, err
		}
		for _, f := range lost {
			done.Files = append(done.Files, f.Name)
			done.Events += f.Events
		}
		if len(lost) > 0 {
			files[p] = all
		}
	}
	if len(files) == 0 {
		return done, nil
	}
	if err := claims.Claim(ctx, job.Conn, a); err != nil {
		return done, err
	}
	for p, all := range files {
		if err := a.GiveUp(ctx, p, all); err != nil {
			return done, err
		}
		var numbers []int
		for _, f := range all {
			if f.GivenUp != nil {
				numbers = append(numbers, f.Number)
			}
		}
		if err := query.Exec(ctx, job.Conn, "record what was given up", statements.Get("give up archived files"), p, numbers); err != nil {
			return done, err
		}
	}
	return done, nil
}

// lost returns two lists of a partition's files: all files, as the new manifest will list them, and
// the lost files among them, which this call marks as given up.
func (cfg *GiveUpConfig) lost(ctx context.Context, job *rebuild.Job, a *archive.Archive, partition int) (all, lost []archive.File, err error) {
	listed, err := replay.ListedFiles(ctx, job.Conn, a, partition)
	if err != nil {
		return nil, nil, err
	}
	now, err := pgsession.Now(ctx, job.Conn)
	if err != nil {
		return nil, nil, err
	}
	now = now.UTC()
	var missing []archive.File
	for _, l := range listed {
		f := l.File
		named := slices.ContainsFunc(cfg.Files, func(n archive.FileNames) bool { return n.Has(f) })
		if !named {
			if l.Missing {
				missing = append(missing, f)
			}
			all = append(all, f)
			continue
		}
		if l.Matches && f.GivenUp == nil {
			var damaged *archive.FileError
			if err := a.Check(ctx, f); err == nil {
				return nil, nil, fmt.Errorf("archive file %s is intact: there is nothing to give up", f.Name)
			} else if !errors.As(err, &damaged) {
				return nil, nil, err // the store may be available later
			}
		}
		if f.GivenUp == nil {
			f.GivenUp = &now
		}
		all, lost = append(all, f), append(lost, f)
	}
	if len(lost) > 0 && len(missing) > 0 {
		return nil, nil, fmt.Errorf("more files of partition %d are missing in the archive: give them up too, with %s", partition, archive.HowToGiveUp(missing))
	}
	return all, lost, nil
}

// WithoutArchive adds advice to the error [archive.ErrNone] if the database lists archived files:
// then an archive must exist. It returns any other error unchanged.
func WithoutArchive(ctx context.Context, q events.Querier, err error) error {
	if !errors.Is(err, archive.ErrNone) {
		return err
	}
	var f archive.File
	var files []archive.File
	readErr := query.Each(ctx, q, "list the archived files", statements.Get("list the archived files"), nil, []any{&f.Partition, &f.Number}, func() error {
		files = append(files, f)
		return nil
	})
	if readErr != nil || len(files) == 0 {
		return errors.Join(err, readErr)
	}
	return fmt.Errorf("%w, but a part of the log is archived: give its archive. If that is lost, give it up with %s", err, archive.HowToGiveUp(files))
}

// Lost counts the archived files of a partition that were declared lost, and their events.
type Lost struct {
	Partition int
	Files     int
	Events    int64
}

// AllLost counts the files that were declared lost. It returns one entry for each partition with
// such files.
func AllLost(ctx context.Context, q events.Querier) ([]Lost, error) {
	return query.All(ctx, q, "read what was given up of the archive", pgx.RowToStructByPos[Lost], statements.Get("read what was given up"))
}
