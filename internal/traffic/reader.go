// Package traffic loads recorded traffic: it reads a file of messages or of
// events, publishes it the way a chat backend would, waits until all of it is
// folded, and says what the badges are then.
//
// [Reader] reads the file, [Target] is where events go, over HTTP or straight
// into the database, and [Load] is the whole of it.
package traffic

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/archive"
)

// errEmpty is the error of a file without any traffic.
var errEmpty = errors.New("there is no traffic in it")

// LineError says what is wrong with one line of a traffic file.
type LineError struct {
	File string
	Line int // from 1
	Err  error
}

// Error implements error.
func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns what is wrong, an [*events.InvalidError] for a bad event.
func (e *LineError) Unwrap() error { return e.Err }

// Record is one event of a traffic file.
type Record struct {
	Event events.Event
	// Line is where it comes from. A message that answers another one gives
	// two events, the read first.
	Line int
	// Size is the length of that line in bytes.
	Size int
}

// Reader reads the events of a traffic file, which has one of two formats:
//
// Messages, one a line, SRC DST UNIXTS: SRC sent DST a message at UNIXTS,
// whole seconds since 1970. The ids are free of white space, which separates
// the fields. A line that begins with '#' is a comment. See [mapping] for the
// events that a message becomes.
//
// Events, one a line, CloudEvents JSON as the API takes it, or as an archive of
// the log has it. They keep their own ids.
//
// The first line that is not blank decides: '{' begins events. Blank lines are
// skipped. Reading takes memory by the number of conversations, and not by the
// number of lines.
type Reader struct {
	file    string
	lines   *lines
	parse   func(line []byte) error // nil before the first line
	mapping *mapping
	pending []Record
	err     error
}

// NewReader returns a reader of r, which errors call file.
func NewReader(file string, r io.Reader) *Reader {
	return &Reader{file: file, lines: newLines(r), mapping: newMapping()}
}

// Next returns the next event, or io.EOF after the last one. Any other error
// names the file and is final; a [*LineError] names the line too. A file
// without any event is an error.
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
	line, err := r.lines.next()
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
		return &LineError{File: r.file, Line: r.lines.number, Err: err}
	}
	return nil
}

func (r *Reader) parseLine(line []byte) error {
	line = bytes.TrimSpace(line) // of a CR at its end as well
	if len(line) == 0 {
		return nil
	}
	if r.parse == nil {
		switch line[0] {
		case '{':
			r.parse = r.parseEvent
		case '#':
			return nil // decides only that what follows are messages
		default:
			r.parse = r.parseMessage
		}
	}
	return r.parse(line)
}

func (r *Reader) parseEvent(line []byte) error {
	event, err := archive.EventOf(line)
	if err != nil {
		return err
	}
	e, err := events.Decode(event)
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
	m := message{line: r.lines.number, src: string(fields[0]), dst: string(fields[1])}
	if reason := events.CheckID(m.src); reason != "" {
		return fmt.Errorf("SRC %s", reason)
	}
	if reason := events.CheckID(m.dst); reason != "" {
		return fmt.Errorf("DST %s", reason)
	}
	var err error
	if m.at, err = parseUnixSeconds(fields[2]); err != nil {
		return err
	}
	for _, e := range r.mapping.events(m) {
		r.add(e, line)
	}
	return nil
}

func (r *Reader) add(e events.Event, line []byte) {
	r.pending = append(r.pending, Record{Event: e, Line: r.lines.number, Size: len(line)})
}

// maxUnixSeconds is the end of the year 9999, the last that an event can have.
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

// quoteShort quotes b for a message, cut where it is long.
func quoteShort(b []byte) string {
	const most = 40
	if len(b) <= most {
		return fmt.Sprintf("%q", b)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(b[cut]) {
		cut--
	}
	return fmt.Sprintf("%q…", b[:cut])
}
