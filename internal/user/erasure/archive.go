package erasure

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/claims"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/query"
)

// archives erases the user from the archive. For each partition, it writes new revisions of the
// files that name the user. It then saves a manifest that lists the new revisions instead of the
// old files. The database accepts old and new files until it has recorded the new revisions.
func (e *eraser) archives(ctx context.Context) error {
	if e.cfg.Archive == nil {
		return nil
	}
	for _, p := range e.held {
		if err := e.archived(ctx, p); err != nil {
			return fmt.Errorf("the archive of partition %d: %w", p, err)
		}
	}
	return nil
}

// archived erases the user from the archive of a partition.
func (e *eraser) archived(ctx context.Context, partition int) error {
	a := e.cfg.Archive
	files, err := replay.ArchivedFiles(ctx, e.conn, a, partition)
	if err != nil || len(files) == 0 {
		return err
	}
	w := rewriter{userID: e.cfg.UserID}
	if partition == e.result.Partition {
		if err := replay.WithSnapshot(ctx, e.cfg.Pool, partition, e.cfg.Log.Partitions(), func(snapshot *replay.Snapshot) error {
			if err := snapshot.UseArchive(ctx, a); err != nil {
				return err
			}
			w.memberships, err = snapshot.MembershipChanges(ctx, e.cfg.UserID)
			return err
		}); err != nil {
			return err
		}
	}
	var replaced []archive.File
	for _, f := range files {
		if f.GivenUp != nil {
			continue
		}
		if err := a.Check(ctx, f); err != nil {
			return err
		}
		before := w.counts
		if err := w.eachOf(ctx, a, f, func(*archive.Record) error { return nil }); err != nil {
			return err
		}
		named := w.counts.Erased > before.Erased || w.counts.Changed > before.Changed
		if f.Shared() && !named {
			// The file has been shared with other partitions since a split, and their part of
			// the file may name the user. So rewrite it for this partition too: the shared
			// file is deleted only when no partition uses it.
			whole := rewriter{userID: w.userID}
			if err := whole.eachOf(ctx, a, f.Whole(), func(*archive.Record) error { return nil }); err != nil {
				return err
			}
			named = whole.counts.Erased > 0 || whole.counts.Changed > 0
		}
		if !named {
			continue
		}
		again := rewriter{userID: w.userID, memberships: w.memberships}
		next, err := a.Replace(ctx, f, func(visit func(*archive.Record) error) error { return again.eachOf(ctx, a, f, visit) })
		if err != nil {
			return err
		}
		replaced = append(replaced, next)
	}
	if len(replaced) > 0 {
		if err := e.replace(ctx, replaced); err != nil {
			return err
		}
	}
	e.result.Archived.add(w.counts)
	return nil
}

// clean completes an earlier, interrupted erasure of users from the archive. It also deletes
// leftover files of an interrupted archiving, since they may name the user. It fails if a
// leftover file may have the only copy of its events.
func (e *eraser) clean(ctx context.Context) error {
	a := e.cfg.Archive
	if a == nil {
		return nil
	}
	var tails []archive.Tail
	for _, p := range e.held { // check the leftover files of all partitions before the first is deleted
		t, err := e.tail(ctx, p)
		if err != nil {
			return fmt.Errorf("the archive of partition %d: %w", p, err)
		}
		tails = append(tails, t)
	}
	if err := e.note(ctx); err != nil {
		return err
	}
	for _, p := range e.held {
		if err := e.settle(ctx, p); err != nil {
			return fmt.Errorf("the archive of partition %d: %w", p, err)
		}
	}
	return a.Cut(ctx, tails...)
}

// tail returns the leftover files that interrupted runs have left in a partition. It fails if
// a leftover file has events that exist nowhere else, or if a file that the database lists is
// missing.
func (e *eraser) tail(ctx context.Context, partition int) (t archive.Tail, err error) {
	a := e.cfg.Archive
	files, err := replay.ArchivedFiles(ctx, e.conn, a, partition)
	if err != nil {
		return t, err
	}
	for _, f := range files {
		if f.GivenUp != nil {
			continue
		}
		if err := a.CheckPresent(ctx, f); err != nil {
			return t, err
		}
	}
	t = archive.Tail{Partition: partition, Known: len(files), Lacking: replay.Lacking(e.conn, partition)}
	return t, a.CheckCut(ctx, t)
}

// note records in the archive that this database writes to it, and that the erasure has begun,
// unless an interrupted call has recorded the erasure before. If the database is later restored
// to an earlier time, the record shows that the erasure must be repeated.
func (e *eraser) note(ctx context.Context) (err error) {
	a := e.cfg.Archive
	if err := claims.Claim(ctx, e.conn, a); err != nil {
		return err
	}
	if e.secret, err = claims.ReadSecret(ctx, e.conn); err != nil {
		return err
	}
	incomplete, err := claims.Incomplete(ctx, e.conn, a)
	if err != nil {
		return err
	}
	digest := e.secret.Digest(e.cfg.UserID)
	for _, known := range incomplete {
		if known.Digest == digest {
			e.noted = append(e.noted, known)
		}
	}
	if len(e.noted) > 0 {
		return nil
	}
	e.noted = []archive.Erasure{{ID: uuid.New(), At: a.Owner().Claimed, Digest: digest}}
	return a.Erasing(ctx, e.noted[0])
}

func (e *eraser) replace(ctx context.Context, files []archive.File) error {
	for i := range files {
		f := &files[i]
		f.Proof = e.secret.Sign(f.Successor())
		if err := query.Exec(ctx, e.conn, "announce archived files", statements.Get("announce an archived file"), f.Partition, f.Number, f.SHA256); err != nil {
			return err
		}
	}
	if err := e.cfg.Archive.Adopt(ctx, files); err != nil {
		return err
	}
	if err := e.settle(ctx, files[0].Partition); err != nil {
		return err
	}
	return e.cfg.Archive.RemoveStale(ctx)
}

// settle records in the database which files the manifest now lists for a partition. After
// that the database accepts only these revisions of the files.
func (e *eraser) settle(ctx context.Context, partition int) error {
	var numbers, revisions []int
	var sums, origins []string
	for _, f := range e.cfg.Archive.Files(partition) {
		numbers, sums = append(numbers, f.Number), append(sums, f.SHA256)
		revisions, origins = append(revisions, f.Revision), append(origins, f.Origin)
	}
	return query.Exec(ctx, e.conn, "record archived files", statements.Get("settle archived files"), partition, numbers, sums, origins, revisions)
}

// eachOf removes the user from each record of a file and then calls visit with the record.
func (w *rewriter) eachOf(ctx context.Context, a *archive.Archive, f archive.File, visit func(*archive.Record) error) error {
	return a.Read(ctx, f, func(records []archive.Record) error {
		for i := range records {
			r := &records[i]
			e, err := events.Decode(r.Payload)
			isForged := err == nil && forged(&r.Record, &e)
			rest, changed, err := w.record(&r.Record)
			switch {
			case err != nil:
				return err
			case isForged: // erase the event: if the row is marked as written by badged, the event would be valid
				rest = []byte("null")
			case changed:
				r.Own = true
			}
			r.Payload = rest
			if err := visit(r); err != nil {
				return err
			}
		}
		return nil
	})
}
