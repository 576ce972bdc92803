// Package traffic loads traffic into badged. It reads a file of messages or events, or generates
// traffic of rooms. It publishes the traffic like a chat backend, waits until all events are
// folded, and sums the badges.
//
// [Reader] reads the file, [RoomTraffic] describes generated traffic, [Target] receives the events
// over HTTP or in the database, and [Load] runs a load.
//
// It does not know the fold: it sums the badges that badged returns.
package traffic

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/partition/archive"
)

// errEmpty: a file contains no traffic.
var errEmpty = errors.New("there is no traffic in it")

// errArchived refuses a line of an archive. Such a line is only the part of an event for one
// partition. A message to a room would be published once for each partition, and each time reach
// all partitions.
var errArchived = errors.New("is a line of an archive: to fill the log of a new database from an archive, use `badged restore`")

// LineError is an error in one line of a traffic file.
type LineError struct {
	File string
	Line int // from 1
	Err  error
}

// Error implements error.
func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns the error of the line. It is an [*events.InvalidError] if the event is invalid.
func (e *LineError) Unwrap() error { return e.Err }

// Record is one event of a traffic file.
type Record struct {
	Event events.Event
	// Line is the line of the event in the file. The line of a message that is an answer has two
	// events: a read, and then the message.
	Line int
	// Size is the length of the line in bytes.
	Size int
}

// Reader reads the events of a traffic file, which has one of two formats. If the first line that
// is not blank begins with '{', the file has events, else messages.
//
// Messages: each line has the form SRC DST UNIXTS. It means that SRC sent a message to DST at the
// time UNIXTS, in whole seconds since 1970. White space separates the fields, so ids must not
// contain it. A line that begins with '#' is a comment. [mapping] says which events a message
// becomes.
//
// Events: each line is a CloudEvent as JSON, as the API accepts it. The events keep their ids.
//
// Blank lines are skipped. The reader's memory grows with the number of conversations, not with the
// number of lines.
type Reader struct {
	file    string
	lines   *Lines
	parse   func(line []byte) error // nil before the first line
	mapping *mapping
	pending []Record
	err     error
}

// NewReader returns a reader of r. file is the name of the traffic file in errors.
func NewReader(file string, r io.Reader) *Reader {
	return &Reader{file: file, lines: NewLines(r), mapping: newMapping()}
}

// Next returns the next event, or io.EOF after the last event. Any other error names the file and
// is final; a [*LineError] also names the line. A file without events is an error.
func (r *Reader) Next() (Record, error) {
	for len(r.pending) == 0 {
		if r.err == nil {
			r.err = r.readLine()
		}
		if r.err != nil {
			return Record{}, r.err
		}
	}
	next := r.pending[0]
	r.pending = r.pending[1:]
	return next, nil
}

// readLine adds the events of the next line to pending.
func (r *Reader) readLine() error {
	line, err := r.lines.Next()
	if errors.Is(err, io.EOF) {
		if r.parse == nil {
			return fmt.Errorf("read %s: %w", r.file, errEmpty)
		}
		return io.EOF
	}
	if err == nil {
		err = r.parseLine(line)
	}
	if err != nil {
		return &LineError{File: r.file, Line: r.lines.Number, Err: err}
	}
	return nil
}

func (r *Reader) parseLine(line []byte) error {
	line = bytes.TrimSpace(line) // this also removes a CR at the end
	if len(line) == 0 {
		return nil
	}
	if r.parse == nil {
		switch line[0] {
		case '{':
			r.parse = r.parseEvent
		case '#':
			return nil // a comment, so the file has messages
		default:
			r.parse = r.parseMessage
		}
	}
	return r.parse(line)
}

func (r *Reader) parseEvent(line []byte) error {
	if archive.IsLine(line) {
		return errArchived
	}
	e, err := events.Decode(line)
	if err != nil {
		return err
	}
	r.add(e, line)
	return nil
}

func (r *Reader) parseMessage(line []byte) error {
	if line[0] == '#' {
		return nil
	}
	fields := bytes.Fields(line)
	if len(fields) != 3 {
		return fmt.Errorf("want SRC DST UNIXTS, found %d fields", len(fields))
	}
	m := message{line: r.lines.Number, src: string(fields[0]), dst: string(fields[1])}
	if reason := events.CheckID(m.src); reason != "" {
		return fmt.Errorf("SRC %s", reason)
	}
	if reason := events.CheckID(m.dst); reason != "" {
		return fmt.Errorf("DST %s", reason)
	}
	var err error
	if m.sentAt, err = parseUnixSeconds(fields[2]); err != nil {
		return err
	}
	for _, e := range r.mapping.events(m) {
		r.add(e, line)
	}
	return nil
}

func (r *Reader) add(e events.Event, line []byte) {
	r.pending = append(r.pending, Record{Event: e, Line: r.lines.Number, Size: len(line)})
}

// maxUnixSeconds is the end of the year 9999, the maximum time of an event.
const maxUnixSeconds = 253402300799

func parseUnixSeconds(field []byte) (int64, error) {
	at, err := strconv.ParseInt(string(field), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("UNIXTS must be whole seconds since 1970, is %s", quoteShort(field))
	}
	if at < 0 || at > maxUnixSeconds {
		return 0, fmt.Errorf("UNIXTS must be seconds since 1970, from 0 to %d, is %d", int64(maxUnixSeconds), at)
	}
	return at, nil
}

// quoteShort quotes b for a message, shortened to 40 bytes.
func quoteShort(b []byte) string {
	const limit = 40
	if len(b) <= limit {
		return fmt.Sprintf("%q", b)
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(b[cut]) {
		cut--
	}
	return fmt.Sprintf("%q…", b[:cut])
}
