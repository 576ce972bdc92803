package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventbatch"
)

// Record is an event of the log.
type Record struct {
	events.Record
	// Metadata is the metadata of the row in JSON, nil if the row has none.
	Metadata []byte
}

// line is the JSON form of a record, one line of a file. If the payload of the record is JSON, the
// line has the payload in Event, otherwise in Payload. If the record has no payload, both fields
// are absent.
type line struct {
	Position   string          `json:"position"`
	AppendedAt time.Time       `json:"appended_at"`
	UUID       uuid.UUID       `json:"uuid"`
	Own        bool            `json:"own,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Event      json.RawMessage `json:"event,omitempty"`
	Payload    []byte          `json:"payload,omitempty"`
}

// linePrefix distinguishes a line of an archive from a bare event.
var linePrefix = []byte(`{"position":"`)

// IsLine reports whether text is a line of an archive file, and not a bare event.
func IsLine(text []byte) bool { return bytes.HasPrefix(text, linePrefix) }

// appendRecord appends the line of a record to b. In the text of the event it replaces line ends by
// spaces, which does not change the event, since JSON has line ends only between tokens.
func appendRecord(b []byte, r *Record) []byte {
	b = append(b, linePrefix...)
	b = append(b, r.String()...)
	b = append(b, `","appended_at":"`...)
	b = r.AppendedAt.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","uuid":"`...)
	b = append(b, r.UUID.String()...)
	b = append(b, '"')
	if r.Own {
		b = append(b, `,"own":true`...)
	}
	if r.Metadata != nil {
		b = appendLine(append(b, `,"metadata":`...), r.Metadata)
	}
	switch {
	case r.Payload == nil:
	case isLine(r.Payload):
		b = appendLine(append(b, `,"event":`...), r.Payload)
	default:
		b = base64.StdEncoding.AppendEncode(append(b, `,"payload":"`...), r.Payload)
		b = append(b, '"')
	}
	return append(b, '}', '\n')
}

// isLine reports whether a payload can be embedded in a line as JSON and read back unchanged.
func isLine(payload []byte) bool {
	return eventbatch.IsJSON(payload) && len(bytes.TrimSpace(payload)) == len(payload)
}

func appendLine(b, text []byte) []byte {
	begin := len(b)
	b = append(b, text...)
	for i := begin; i < len(b); i++ {
		if b[i] == '\n' || b[i] == '\r' {
			b[i] = ' '
		}
	}
	return b
}

// parseRecord reads a line.
func parseRecord(text []byte) (Record, error) {
	var l line
	var r Record
	if err := json.Unmarshal(text, &l); err != nil {
		return r, err
	}
	var err error
	if r.Place, err = events.ParsePlace(l.Position); err != nil {
		return r, err
	}
	r.UUID, r.AppendedAt, r.Own, r.Payload, r.Metadata = l.UUID, l.AppendedAt, l.Own, l.Event, l.Metadata
	if l.Payload != nil {
		r.Payload = l.Payload
	}
	return r, nil
}

// Write durably writes a file of a partition, and reads it back to check it. `number` is the number
// of the file, from 1. The function eachRecord must call its argument once for every record, in
// order. Write returns the manifest entry of the file, without generations and dead letters;
// [Archive.Add] adds the entry to the manifest. Before the first Write, the caller must call
// [Archive.Cut], which deletes the files of interrupted calls.
func (a *Archive) Write(ctx context.Context, partition, number int, eachRecord func(func(*Record) error) error) (File, error) {
	f := File{Partition: partition, Number: number, Name: FileName(partition, number)}
	if number > 1 {
		f.Previous = a.Files(partition)[number-2].SHA256
	}
	return f, a.put(ctx, &f, eachRecord)
}

// Add durably adds to the manifest the entry of a partition's next file, which Write has written.
func (a *Archive) Add(ctx context.Context, f File) error {
	a.divide(f.Partition)
	a.manifest.Files = append(a.manifest.Files, f)
	return a.save(ctx)
}

// put writes the records to a file and reads it back. It sets the fields of f that describe the
// content. If the file cannot be read back, put deletes it.
func (a *Archive) put(ctx context.Context, f *File, eachRecord func(func(*Record) error) error) error {
	content, err := a.write(ctx, f, eachRecord)
	if err != nil {
		return fmt.Errorf("write archive file %s: %w", a.path(*f), err)
	}
	read, compressed := sha256.New(), &counter{Hash: sha256.New()}
	err = a.decompress(ctx, *f, compressed, func(r io.Reader) error {
		_, err := io.Copy(read, r)
		return err
	})
	if err == nil && !bytes.Equal(read.Sum(nil), content) {
		err = errors.New("its content differs from what was written")
	}
	if err != nil {
		err = &FileError{a.path(*f), "cannot be read back: " + err.Error()}
		return errors.Join(err, a.store.Remove(context.WithoutCancel(ctx), f.Name))
	}
	f.Bytes, f.SHA256 = compressed.size, hex.EncodeToString(compressed.Sum(nil))
	return nil
}

// exists reports whether the store has an object with this name.
func (a *Archive) exists(ctx context.Context, name string) (bool, error) {
	r, err := a.store.Open(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, r.Close()
}

// counter is a hash that also counts the bytes written to it.
type counter struct {
	hash.Hash
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.Hash.Write(p)
}

// write writes the records, compressed, to a new file of the store. It returns the SHA-256 of the
// uncompressed content.
func (a *Archive) write(ctx context.Context, f *File, eachRecord func(func(*Record) error) error) (content []byte, err error) {
	w, err := a.store.Create(ctx, f.Name)
	if err != nil {
		return nil, err
	}
	// Use one encoder thread, so that the same records are compressed to the same bytes on every
	// machine.
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err == nil {
		content, err = f.write(z, eachRecord)
		err = errors.Join(err, z.Close())
	}
	if err != nil {
		w.Abort()
		return nil, err
	}
	return content, w.Commit()
}

// write writes the lines of the records to `to`, and returns the SHA-256 of the lines. It sets
// Events, First, Last and AppendedUntil of f.
func (f *File) write(to io.Writer, eachRecord func(func(*Record) error) error) (content []byte, err error) {
	hash := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(hash, to), 1<<20)
	var text []byte
	err = eachRecord(func(r *Record) error {
		if f.Events == 0 {
			f.First = r.String()
		}
		f.Events++
		f.Last = r.String()
		if r.AppendedAt.After(f.AppendedUntil) {
			f.AppendedUntil = r.AppendedAt.UTC()
		}
		text = appendRecord(text[:0], r)
		_, err := buffered.Write(text)
		return err
	})
	if err = errors.Join(err, buffered.Flush()); err != nil {
		return nil, err
	}
	return hash.Sum(nil), nil
}

// readPage is the number of records in a page of Read.
const readPage = 5000

// Read calls visit with pages of the records of a file, in order. visit may retain a page. Read
// fails with a [*FileError] if the file cannot be read, or if its number of events or its last
// place differs from the manifest. If several partitions share the file after a split, Read
// reduces each event to the users of f.Partition; if an event names none of these users, its
// payload is `null`.
func (a *Archive) Read(ctx context.Context, f File, visit func([]Record) error) error {
	count, last, err := a.read(ctx, f, visit)
	if err == nil && (count != f.Events || last != f.Last) {
		return &FileError{a.path(f), fmt.Sprintf("has %d events up to %s, and should have %d up to %s", count, last, f.Events, f.Last)}
	}
	return err
}

// read reads a file as Read does, without comparing the file with the manifest. So the manifest
// need not list the file. It returns the number of records in the file, and the place of the last
// record.
func (a *Archive) read(ctx context.Context, f File, visit func([]Record) error) (count int64, last string, err error) {
	steps, err := a.filters(f)
	if err != nil {
		return 0, "", err
	}
	var visited error
	err = a.decompress(ctx, f, io.Discard, func(r io.Reader) error {
		page := make([]Record, 0, readPage)
		flush := func() error {
			if len(page) > 0 {
				count += int64(len(page))
				last = page[len(page)-1].String()
				visited = visit(page)
				page = make([]Record, 0, readPage)
			}
			return visited
		}
		lines := bufio.NewReaderSize(r, 1<<20)
		for {
			text, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) && len(text) == 0 {
				return flush()
			}
			if err != nil {
				return err
			}
			record, err := parseRecord(text)
			if err == nil {
				err = reduce(&record, steps)
			}
			if err != nil {
				return err
			}
			if page = append(page, record); len(page) == readPage {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	})
	switch {
	case visited != nil:
		err = visited
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = &FileError{a.path(f), "cannot be read: " + err.Error()}
	}
	return count, last, err
}

// decompress calls visit with the uncompressed content of a file. Meanwhile it writes all bytes of
// the compressed file to `compressed`.
func (a *Archive) decompress(ctx context.Context, f File, compressed io.Writer, visit func(io.Reader) error) error {
	file, err := a.store.Open(ctx, f.Name)
	if err != nil {
		return err
	}
	defer file.Close()
	read := io.TeeReader(file, compressed)
	z, err := zstd.NewReader(read, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	if err := visit(z); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, read) // read the bytes after the zstd frame too
	return err
}
