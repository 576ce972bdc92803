package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/pg/query"
)

// ArchivedFiles returns the archive's entries of the files that the database lists for a partition:
// together these files have all events that were removed from the log. The result includes files
// that an operator has declared lost; they cannot be read. It omits files that the database does
// not list, such as files of an interrupted run. ArchivedFiles fails if an entry is missing or does
// not match the database; see [Listed].
func ArchivedFiles(ctx context.Context, q events.Querier, a *archive.Archive, partition int) ([]archive.File, error) {
	return archivedFiles(ctx, q, a, partition, false)
}

// MovedFiles is like ArchivedFiles for a partition that was moved to this database. The archive a
// belongs to the database from which the partition was moved, so the id of its log is not checked.
func MovedFiles(ctx context.Context, q events.Querier, a *archive.Archive, partition int) ([]archive.File, error) {
	return archivedFiles(ctx, q, a, partition, true)
}

func archivedFiles(ctx context.Context, q events.Querier, a *archive.Archive, partition int, moved bool) ([]archive.File, error) {
	listed, err := listedFiles(ctx, q, a, partition, moved)
	if err != nil {
		return nil, err
	}
	files := make([]archive.File, len(listed))
	var missing []archive.File
	for i, l := range listed {
		if files[i] = l.File; l.Missing {
			missing = append(missing, l.File)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the archive of partition %d is incomplete: it has %d of %d files; restore the others from a copy, or give them up with %s", partition, len(listed)-len(missing), len(listed), archive.HowToGiveUp(missing))
	}
	for _, l := range listed {
		switch {
		case l.Matches:
		case l.File.GivenUp != nil:
			return nil, fmt.Errorf("file %s of the archive of partition %d was given up at %s, and the database was restored to a time before that: give it up again with %s", l.File.Name, partition, l.File.GivenUp.Format(time.RFC3339), archive.HowToGiveUp([]archive.File{l.File}))
		default:
			return nil, fmt.Errorf("the archive of partition %d does not match the log: file %s has changed since it was written; replace it by an intact copy, or give it up with %s", partition, l.File.Name, archive.HowToGiveUp([]archive.File{l.File}))
		}
	}
	return files, nil
}

// Listed is an archived file that the database lists.
type Listed struct {
	// File is the entry of the manifest. If there is no entry, File has the number, events and
	// hash that the database stores.
	File archive.File
	// Missing is true if the manifest has no entry, and the database does not list the file as
	// given up.
	Missing bool
	// Matches is true if the entry agrees with the database. There are three cases: the entry has
	// a hash that the database stores; the entry has a proof that an erasure rewrote the file
	// later; or the database lists the file as given up.
	Matches bool
}

// ListedFiles returns the files that the database lists for a partition, compared with the manifest
// of the log's archive. It fails with an [*archive.SplitError] if the archive has files of children
// of the partition.
func ListedFiles(ctx context.Context, q events.Querier, a *archive.Archive, partition int) ([]Listed, error) {
	return listedFiles(ctx, q, a, partition, false)
}

func listedFiles(ctx context.Context, q events.Querier, a *archive.Archive, partition int, moved bool) (listed []Listed, err error) {
	var id uuid.UUID
	var partitions int
	if err := q.QueryRow(ctx, statements.Get("read the identity of the log")).Scan((*[16]byte)(&id), &partitions); err != nil {
		return nil, fmt.Errorf("read what is archived: %w", err)
	}
	if moved {
		id = a.LogID()
	}
	if err := a.WantLog(id, partitions); err != nil {
		return nil, err
	}
	if split := a.Split(partition); len(split) > 0 {
		return nil, &archive.SplitError{Partitions: split}
	}
	known, err := query.All(ctx, q, "read what is archived", pgx.RowToStructByPos[knownFile], statements.Get("read the archived files"), partition)
	if err != nil {
		return nil, err
	}
	has := a.Files(partition)
	for i, k := range known {
		if i >= len(has) {
			f := archive.File{Partition: partition, Number: k.Number, Name: archive.FileName(partition, k.Number), Events: k.Events, SHA256: k.Sum, GivenUp: k.GivenUp}
			listed = append(listed, Listed{File: f, Missing: f.GivenUp == nil, Matches: f.GivenUp != nil})
			continue
		}
		f := has[i]
		matches := k.GivenUp == nil && f.GivenUp == nil && (f.SHA256 == k.Sum || f.SHA256 == k.Next)
		switch {
		case k.GivenUp != nil: // the file counts as given up even if a copy of it was found later
			f.GivenUp, matches = k.GivenUp, true
		case !matches && f.GivenUp == nil:
			if matches, err = k.became(ctx, q, &f); err != nil {
				return nil, err
			}
		}
		listed = append(listed, Listed{File: f, Matches: matches})
	}
	return listed, nil
}

// knownFile is what the database stores about an archived file.
type knownFile struct {
	Number            int
	Events            int64
	Sum, Next, Origin string // Next is the hash of the file that is replacing this one
	Revision          int
	GivenUp           *time.Time
}

// became reports whether f is a later revision of the file k that an erasure has written. If the
// database was restored to an earlier time, it has no record of this erasure. The proof of f
// shows that this database or a copy of it has written the revision.
func (k *knownFile) became(ctx context.Context, q events.Querier, f *archive.File) (proven bool, err error) {
	if f.Origin != k.Origin || f.Revision <= k.Revision {
		return false, nil // an older copy, or another file
	}
	return query.One[bool](ctx, q, "check the proof of archive file "+f.Name, statements.Get("does a proof hold"), f.Proof, f.Successor())
}

// Lacking returns a function that determines which of the given rows are not in the log of a
// partition. Two rows are the same if their UUIDs and times are equal, even if their places differ.
func Lacking(q events.Querier, partition int) archive.Lacking {
	return func(ctx context.Context, rows []archive.Row) ([]archive.Row, error) {
		uuids, times := make([][16]byte, len(rows)), make([]time.Time, len(rows))
		for i, r := range rows {
			uuids[i], times[i] = r.UUID, r.AppendedAt
		}
		var missing []archive.Row
		var number int
		err := query.Each(ctx, q, fmt.Sprintf("compare archived files with the log of partition %d", partition),
			statements.Of(partition, "find rows that the log lacks"), []any{uuids, times}, []any{&number}, func() error {
				missing = append(missing, rows[number])
				return nil
			})
		return missing, err
	}
}

// givenUp returns the number of archived events whose files were declared lost.
func (snapshot *Snapshot) givenUp(ctx context.Context) (int64, error) {
	return query.One[int64](ctx, snapshot.Tx, "read what was given up", statements.Get("count the events of files that were given up"), snapshot.Partition)
}
