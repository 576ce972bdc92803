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
	"github.com/badged/badged/internal/eventbatch"
)

// Record is an event of the log.
type Record struct {
	events.Record
	// Metadata is the metadata of its row as JSON, nil if there is none.
	Metadata []byte
}

// line is a record in a file. Event is the text in the log, and Payload what is
// there if that is not JSON; both are absent if the record has none.
type line struct {
	Position   string          `json:"position"`
	AppendedAt time.Time       `json:"appended_at"`
	UUID       uuid.UUID       `json:"uuid"`
	Own        bool            `json:"own,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Event      json.RawMessage `json:"event,omitempty"`
	Payload    []byte          `json:"payload,omitempty"`
}

// linePrefix tells a line of an archive from a bare event.
var linePrefix = []byte(`{"position":"`)

// IsLine reports whether text is a line of an archive file, rather than a bare
// event.
func IsLine(text []byte) bool { return bytes.HasPrefix(text, linePrefix) }

// appendRecord appends the line of a record. The text of the event stays
// unchanged except for line ends, which JSON has only between tokens.
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

// isLine reports whether a payload is read from a line as it was written.
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

// Write writes file number of a partition durably and reads it back; the first
// has number 1. each calls its argument with every record in order, and can be
// called repeatedly. The result is the manifest entry without generations and
// dead letters; Write does not add it to the manifest.
//
// If a file with the name exists, because an earlier call was not followed by
// Add, its content must be the same.
func (a *Archive) Write(ctx context.Context, partition, number int, each func(func(*Record) error) error) (File, error) {
	f := File{Partition: partition, Number: number}
	if number > 1 {
		f.Previous = a.Files(partition)[number-2].SHA256
	}
	f.Name = fileName(partition, number)
	there, err := a.exists(ctx, f.Name)
	if err != nil {
		return f, fmt.Errorf("write archive file %s: %w", a.path(f), err)
	}
	if err := a.put(ctx, &f, there, each); err != nil {
		return f, err
	}
	return f, nil
}

// put writes the records to a file, unless it is there, and reads it back. It fills in
// f, except for what Write and Replace know. A new file that is wrong is removed.
func (a *Archive) put(ctx context.Context, f *File, there bool, each func(func(*Record) error) error) error {
	var content []byte
	var err error
	if there {
		content, err = f.write(io.Discard, each)
	} else {
		content, err = a.write(ctx, f, each)
	}
	if err != nil {
		return fmt.Errorf("write archive file %s: %w", a.path(*f), err)
	}
	read, compressed := sha256.New(), &counter{Hash: sha256.New()}
	err = a.decompress(ctx, *f, compressed, func(r io.Reader) error {
		_, err := io.Copy(read, r)
		return err
	})
	switch {
	case err != nil:
		err = &FileError{a.path(*f), "cannot be read back: " + err.Error()}
	case !bytes.Equal(read.Sum(nil), content):
		err = &FileError{a.path(*f), otherEvents}
	}
	if err != nil {
		if !there {
			err = errors.Join(err, a.store.Remove(context.WithoutCancel(ctx), f.Name))
		}
		return err
	}
	f.Bytes, f.SHA256 = compressed.size, hex.EncodeToString(compressed.Sum(nil))
	return nil
}

// exists reports whether the store has an object.
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

// counter is a hash that counts its bytes.
type counter struct {
	hash.Hash
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.Hash.Write(p)
}

// write writes the records to a new file, and returns the SHA-256 of the
// uncompressed content.
func (a *Archive) write(ctx context.Context, f *File, each func(func(*Record) error) error) (content []byte, err error) {
	w, err := a.store.Create(ctx, f.Name)
	if err != nil {
		return nil, err
	}
	// The same bytes on every machine.
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err == nil {
		content, err = f.write(z, each)
		err = errors.Join(err, z.Close())
	}
	if err != nil {
		w.Abort()
		return nil, err
	}
	return content, w.Commit()
}

// write writes the records, and returns the SHA-256 of what it wrote.
func (f *File) write(to io.Writer, each func(func(*Record) error) error) (content []byte, err error) {
	hash := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(hash, to), 1<<20)
	var text []byte
	err = each(func(r *Record) error {
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

// readPage is how many records Read passes to visit at once.
const readPage = 5000

// Read calls visit with the records of a file, in order and in pages, which
// visit may keep. It fails with a [*FileError] if the file does not match the
// manifest. Of a shared file, the records are as many, and each is the share of it: the
// payload is `null` if that is empty.
func (a *Archive) Read(ctx context.Context, f File, visit func([]Record) error) error {
	count, last, err := a.read(ctx, f, visit)
	if err == nil && (count != f.Events || last != f.Last) {
		return &FileError{a.path(f), fmt.Sprintf("has %d events up to %s, and should have %d up to %s", count, last, f.Events, f.Last)}
	}
	return err
}

// read does what Read does, with a file that need not be in the manifest. It returns how
// many records the file has, and the place of the last.
func (a *Archive) read(ctx context.Context, f File, visit func([]Record) error) (count int64, last string, err error) {
	steps, err := a.shares(f)
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

// decompress calls visit with the uncompressed content of a file, and writes the
// compressed one to compressed.
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
	_, err = io.Copy(io.Discard, read) // what zstd left, which is also part of the file
	return err
}
