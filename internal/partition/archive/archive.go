// Package archive stores events that were removed from the log in files: compressed NDJSON, one
// file for each range of a partition's log, and a manifest that lists the files and their
// checksums. The files are in a folder or in another [Store].
//
// It does not use the database, and does not know what events mean: package archiving writes
// archives, and package replay folds them. ADR 26 has the reasons for the format, ADR 79 for
// buckets and encryption.
package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	manifestName = "manifest.json"
	format       = "badged archive 1"
)

// ErrNone is returned for a store without a manifest.
var ErrNone = errors.New("not an archive: " + manifestName + " is missing")

// Archive is a manifest and the files that it lists. Methods that only read are safe for concurrent
// use; a method that changes the archive must not run at the same time as any other method.
type Archive struct {
	store    Store
	manifest manifest
	// version is the version of the manifest in the store. Saving fails if the store has another
	// version.
	version string
	// lock is nil if the archive is read-only.
	lock io.Closer
}

// manifest is the content of the file manifest.json.
type manifest struct {
	Format string `json:"format"`
	// LogID identifies the log. The log in a copy of the database has the same id.
	LogID      uuid.UUID `json:"log_id"`
	Partitions int       `json:"partitions"`
	Owner      Owner     `json:"owner"`
	Files      []File    `json:"files"`
	// Erasures are the erasures of users since the first file was written.
	Erasures []Erasure `json:"erasures,omitempty"`
	// Stale are the names of files that RemoveStale deletes, unless Files lists them.
	Stale []string `json:"stale,omitempty"`
}

// File is the manifest's entry for a file.
type File struct {
	Partition int `json:"partition"`
	// Number counts the files of a partition from 1, in the order of the log.
	Number int `json:"number"`
	// From is the number of the partition for which the file was written, if that partition was
	// split later; otherwise it is nil. If it is set, Partition is a descendant of From, and
	// Archive.Read returns only the events of Partition's users.
	From *int `json:"from,omitempty"`
	// Name is the name of the file in the store.
	Name string `json:"name"`
	// Events is the number of events. First and Last are the places of the first and the last
	// event, such as "1234/56". AppendedUntil is when the latest event was appended.
	Events        int64     `json:"events"`
	First         string    `json:"first"`
	Last          string    `json:"last"`
	AppendedUntil time.Time `json:"appended_until"`
	// Bytes and SHA256 are the size and the hash of the compressed file. Previous is the SHA256
	// of the partition's previous file, or empty for the first file.
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Previous string `json:"previous"`
	// Revision is the number of times that erasures have rewritten the file. Origin is the SHA256
	// of the file as it was first written. Proof is a keyed hash of the text that
	// [File.Successor] returns. All three are zero if the file was never rewritten.
	Revision int    `json:"revision,omitempty"`
	Origin   string `json:"origin,omitempty"`
	Proof    string `json:"proof,omitempty"`
	// GivenUp is when an operator declared the file lost, or nil. The entry of a lost file
	// remains in the manifest, so that the numbers of the files have no gap.
	GivenUp *time.Time `json:"given_up,omitempty"`
	// Generations are the generations of event keys that begin in the file. A replay needs them
	// to detect the same repeated events as the projector did: a repetition is detected only
	// while its event key is stored.
	Generations []Generation `json:"generations,omitempty"`
	// DeadLetters are the places of events that could not be folded.
	DeadLetters []string `json:"dead_letters,omitempty"`
}

// Generation is a generation of event keys. It begins after the position After, such as "1234/56".
type Generation struct {
	Number int    `json:"number"`
	After  string `json:"after"`
}

// FileError is an error in a file of an archive.
type FileError struct {
	Path   string
	Reason string
}

// Error implements error.
func (e *FileError) Error() string { return fmt.Sprintf("archive file %s %s", e.Path, e.Reason) }

// OpenStore opens an archive for reading. It checks that the manifest lists the files of each
// partition in order and without a gap. It does not read the files; [Archive.Check] reads them. It
// fails with ErrNone if the store has no manifest.
func OpenStore(ctx context.Context, store Store) (*Archive, error) {
	a := &Archive{store: store}
	named := store.Path(manifestName)
	text, version, err := store.Load(ctx, manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", store.Path(""), ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	a.version = version
	if bytes.HasPrefix(text, []byte(sealedPrefix)) {
		return nil, &FileError{named, "is encrypted: give the file of its keys with --archive-keys"}
	}
	if reason := a.manifest.parse(text); reason != "" {
		return nil, &FileError{named, reason}
	}
	last := map[int]File{}
	for _, f := range a.manifest.Files {
		before := last[f.Partition]
		if f.Number != before.Number+1 || f.Previous != before.SHA256 || f.Name != path.Base(f.Name) {
			return nil, &FileError{named, fmt.Sprintf("is broken: file %d of partition %d does not follow the one before it", f.Number, f.Partition)}
		}
		if _, err := a.filters(f); err != nil {
			return nil, err
		}
		last[f.Partition] = f
	}
	return a, nil
}

// Continue opens an existing archive for writing, or fails with ErrNone. Until the archive is
// closed, further calls of Continue and Create fail with ErrInUse in any process. If the store has
// no locks, two processes can open the archive: after one process has saved the manifest, the
// next save by the other process fails with ErrInUse.
func Continue(ctx context.Context, store Store) (*Archive, error) {
	if _, err := OpenStore(ctx, store); err != nil {
		return nil, err
	}
	l, err := store.Lock(ctx)
	if err != nil {
		return nil, err
	}
	a, err := OpenStore(ctx, store) // reload under the lock
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	a.lock = l
	return a, nil
}

// Create creates an empty archive for a log, and the folder if necessary. It opens the archive as
// Continue does. It fails with os.ErrExist if the store already has an archive.
func Create(ctx context.Context, store Store, logID uuid.UUID, partitions int) (*Archive, error) {
	l, err := store.Lock(ctx)
	if err != nil {
		return nil, err
	}
	a := &Archive{store: store, lock: l, manifest: manifest{Format: format, LogID: logID, Partitions: partitions, Files: []File{}}}
	if _, _, err = store.Load(ctx, manifestName); err == nil {
		err = fmt.Errorf("create the archive %s: %w", store.Path(""), os.ErrExist)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = a.save(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return a, nil
}

// Close releases the lock of an archive opened by Continue or Create.
func (a *Archive) Close() error { return a.lock.Close() }

// LogID returns the id of the archived log.
func (a *Archive) LogID() uuid.UUID { return a.manifest.LogID }

// WantLog fails unless the archive belongs to the log with this id and initial number of
// partitions.
func (a *Archive) WantLog(id uuid.UUID, partitions int) error {
	if a.LogID() != id || a.Partitions() != partitions {
		return fmt.Errorf("the archive belongs to another log: %s with %d partitions, this one is %s with %d", a.LogID(), a.Partitions(), id, partitions)
	}
	return nil
}

// Partitions returns the initial number of partitions of the log.
func (a *Archive) Partitions() int { return a.manifest.Partitions }

// Numbers returns the partitions that have entries in the manifest, in ascending order. After a
// split, the manifest lists the files under the parent until an entry of a child is added or
// changed.
func (a *Archive) Numbers() []int {
	var numbers []int
	for _, f := range a.manifest.Files {
		numbers = append(numbers, f.Partition)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// Files returns the files of a partition in order. If the manifest has no files of the
// partition, Files returns the files of the nearest ancestor that has files.
func (a *Archive) Files(partition int) []File {
	holder, files := a.holder(partition)
	if holder != partition {
		return entriesFor(files, partition)
	}
	return files
}

// Check reads a file. It returns a [*FileError] if the file is missing, or if its size or checksum
// differs from the manifest.
func (a *Archive) Check(ctx context.Context, f File) error {
	path := a.path(f)
	size, sum, err := a.digest(ctx, f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a.missing(f)
	case err != nil:
		return fmt.Errorf("check archive file %s: %w", path, err)
	case size != f.Bytes || sum != f.SHA256:
		return &FileError{path, fmt.Sprintf("has changed since it was written: it has %d bytes with SHA-256 %s, and should have %d with %s; replace it by an intact copy, or give it up with %s", size, sum, f.Bytes, f.SHA256, HowToGiveUp([]File{f}))}
	}
	return nil
}

// CheckAll checks files as Check does, except files that were declared lost.
func (a *Archive) CheckAll(ctx context.Context, files []File) error {
	for _, f := range files {
		if f.GivenUp == nil {
			if err := a.Check(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckPresent returns a [*FileError] if a file is missing. It does not read the file.
func (a *Archive) CheckPresent(ctx context.Context, f File) error {
	there, err := a.exists(ctx, f.Name)
	if err != nil {
		return fmt.Errorf("check archive file %s: %w", a.path(f), err)
	}
	if !there {
		return a.missing(f)
	}
	return nil
}

func (a *Archive) missing(f File) error {
	return &FileError{a.path(f), "is missing: restore it from a copy, or give it up with " + HowToGiveUp([]File{f})}
}

func (a *Archive) path(f File) string { return a.store.Path(f.Name) }

// parse decodes a manifest. If the manifest cannot be used, parse returns the reason, otherwise "".
// It refuses unknown fields: they would be lost when this release saves the manifest.
func (m *manifest) parse(text []byte) (reason string) {
	if err := json.Unmarshal(text, m); err != nil {
		return "is not a manifest: " + err.Error()
	}
	if m.Format != format {
		return fmt.Sprintf("has the format %q; this release reads %q", m.Format, format)
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(new(manifest)); err != nil {
		return fmt.Sprintf("has something that this release does not know (%s): use the release that wrote it, or a later one", strings.TrimPrefix(err.Error(), "json: "))
	}
	return ""
}

// save stores the manifest atomically.
func (a *Archive) save(ctx context.Context) error {
	text, err := json.MarshalIndent(a.manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	if a.version, err = a.store.Save(ctx, manifestName, append(text, '\n'), a.version); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return nil
}

// digest reads a file, and returns its size and SHA-256.
func (a *Archive) digest(ctx context.Context, f File) (size int64, sum string, err error) {
	file, err := a.store.Open(ctx, f.Name)
	if err != nil {
		return 0, "", err
	}
	defer file.Close()
	hash := sha256.New()
	size, err = io.Copy(hash, file)
	return size, hex.EncodeToString(hash.Sum(nil)), err
}
