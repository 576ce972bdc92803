// Package archive stores events that were cut off the log in files: a
// directory of compressed NDJSON with a file for each range of a partition's
// log, and a manifest that lists the files and their checksums.
//
// It does not use the database: package archiving writes archives, and package
// replay folds them.
package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
)

const (
	manifestName = "manifest.json"
	format       = "badged archive 1"
)

// ErrNone is returned for a directory without a manifest.
var ErrNone = errors.New("not an archive: " + manifestName + " is missing")

// Archive is a directory of files and its manifest. It is not safe for
// concurrent use while files are added.
type Archive struct {
	dir      string
	manifest manifest
	// lock is nil if the archive is read-only.
	lock *os.File
}

// manifest is the content of the file manifest.json.
type manifest struct {
	Format string `json:"format"`
	// LogID identifies the log; a copy of the database has the same.
	LogID      uuid.UUID `json:"log_id"`
	Partitions int       `json:"partitions"`
	Files      []File    `json:"files"`
	// Stale are the names of files that were replaced and are to be deleted.
	Stale []string `json:"stale,omitempty"`
}

// File is the manifest's entry for a file.
type File struct {
	Partition int `json:"partition"`
	// Number counts the files of a partition from 1, in the order of the log.
	Number int `json:"number"`
	// Name is the name of the file in the directory.
	Name string `json:"name"`
	// Events is the number of events, First and Last are the positions of the
	// first and the last, such as "1234/56", and AppendedUntil is when the
	// latest was appended.
	Events        int64     `json:"events"`
	First         string    `json:"first"`
	Last          string    `json:"last"`
	AppendedUntil time.Time `json:"appended_until"`
	// Bytes and SHA256 are of the compressed file; Previous is the SHA256 of
	// the file before, empty for the first of a partition.
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Previous string `json:"previous"`
	// Generations are the generations of event keys that begin in the file: a
	// repeated event changes nothing while the key of the first is kept.
	Generations []Generation `json:"generations,omitempty"`
	// DeadLetters are the positions of events that could not be folded.
	DeadLetters []string `json:"dead_letters,omitempty"`
}

// Generation is a generation of event keys and the position after which it
// begins.
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

// Open reads the manifest of a directory, and checks that no file is missing
// from its sequence. It does not read the files; [Archive.Check] does. It
// fails with ErrNone if there is no manifest. No files can be added to the
// result.
func Open(dir string) (*Archive, error) {
	a := &Archive{dir: dir}
	path := filepath.Join(dir, manifestName)
	text, err := os.ReadFile(path) //nolint:gosec // the directory that the user named
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	if err := json.Unmarshal(text, &a.manifest); err != nil {
		return nil, &FileError{path, "is not a manifest: " + err.Error()}
	}
	if a.manifest.Format != format {
		return nil, &FileError{path, fmt.Sprintf("has the format %q; this release reads %q", a.manifest.Format, format)}
	}
	last := map[int]File{}
	for _, f := range a.manifest.Files {
		before := last[f.Partition]
		if f.Number != before.Number+1 || f.Previous != before.SHA256 || f.Name != filepath.Base(f.Name) {
			return nil, &FileError{path, fmt.Sprintf("is broken: file %d of partition %d does not follow the one before it", f.Number, f.Partition)}
		}
		last[f.Partition] = f
	}
	return a, nil
}

// Continue opens an archive to add files: until it is closed, other calls in
// any process fail with ErrInUse. If there is no archive it fails with ErrNone
// and creates nothing.
func Continue(dir string) (*Archive, error) {
	if _, err := Open(dir); err != nil {
		return nil, err
	}
	l, err := lock(dir)
	if err != nil {
		return nil, err
	}
	a, err := Open(dir) // again, now that no other process can change it
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	a.lock = l
	return a, nil
}

// Create creates an archive without files for a log, with its directory if
// necessary, and opens it as Continue does. It fails with os.ErrExist if there
// is one.
func Create(dir string, logID uuid.UUID, partitions int) (*Archive, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("create the archive: %w", err)
	}
	l, err := lock(dir)
	if err != nil {
		return nil, err
	}
	a := &Archive{dir: dir, lock: l, manifest: manifest{Format: format, LogID: logID, Partitions: partitions, Files: []File{}}}
	if _, err = os.Stat(filepath.Join(dir, manifestName)); err == nil {
		err = fmt.Errorf("create the archive %s: %w", dir, os.ErrExist)
	} else if errors.Is(err, os.ErrNotExist) {
		err = a.save()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return a, nil
}

// Close lets others add files to an archive opened by Continue or Create.
func (a *Archive) Close() error { return a.lock.Close() }

// makeDir creates a directory and its parents, durably: an archive must
// survive a power failure, and so must its directory.
func makeDir(dir string) error {
	dir = filepath.Clean(dir)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// LogID returns the id of the log.
func (a *Archive) LogID() uuid.UUID { return a.manifest.LogID }

// Partitions returns how many partitions the log has.
func (a *Archive) Partitions() int { return a.manifest.Partitions }

// Files returns the files of a partition in order.
func (a *Archive) Files(partition int) []File {
	var files []File
	for _, f := range a.manifest.Files {
		if f.Partition == partition {
			files = append(files, f)
		}
	}
	return files
}

// Add adds a written file to the manifest, durably. It replaces an entry with
// the same number, which an interrupted run left, and if that was a different
// file also all later entries.
func (a *Archive) Add(f File) error {
	before := a.Files(f.Partition)
	other := len(before) >= f.Number && before[f.Number-1].SHA256 != f.SHA256
	a.manifest.Files = slices.DeleteFunc(a.manifest.Files, func(old File) bool {
		return old.Partition == f.Partition && other && old.Number >= f.Number
	})
	i := slices.IndexFunc(a.manifest.Files, func(old File) bool { return old.Partition == f.Partition && old.Number == f.Number })
	if i >= 0 {
		a.manifest.Files[i] = f
	} else {
		a.manifest.Files = append(a.manifest.Files, f)
	}
	return a.save()
}

// Check returns a [*FileError] unless the size and the checksum of a file
// match the manifest.
func (a *Archive) Check(ctx context.Context, f File) error {
	path := a.path(f)
	size, sum, err := digest(ctx, path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &FileError{path, "is missing"}
	case err != nil:
		return fmt.Errorf("check archive file %s: %w", path, err)
	case size != f.Bytes || sum != f.SHA256:
		return &FileError{path, fmt.Sprintf("has changed since it was written: it has %d bytes with SHA-256 %s, and should have %d with %s", size, sum, f.Bytes, f.SHA256)}
	}
	return nil
}

func (a *Archive) path(f File) string { return filepath.Join(a.dir, f.Name) }

// save writes the manifest atomically.
func (a *Archive) save() error {
	text, err := json.MarshalIndent(a.manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	f, err := os.CreateTemp(a.dir, manifestName+".*")
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Chmod(0o640), f.Sync(), f.Close()); err == nil {
		err = a.place(f.Name(), manifestName)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error matters
		return fmt.Errorf("write the manifest: %w", err)
	}
	return nil
}

// place gives a file its name, durably.
func (a *Archive) place(path, name string) error {
	if err := os.Rename(path, filepath.Join(a.dir, name)); err != nil {
		return err
	}
	return syncDir(a.dir)
}

// digest returns the size and the SHA-256 of a file.
func digest(ctx context.Context, path string) (size int64, sum string, err error) {
	f, err := os.Open(path) //nolint:gosec // a file of the archive
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	hash := sha256.New()
	size, err = io.Copy(hash, contextReader{ctx, f})
	return size, hex.EncodeToString(hash.Sum(nil)), err
}

// contextReader reads until a context is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
