package importing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/traffic"
)

// fields are the fields of a row. A file must have the first four.
var fields = []string{
	"user_id", "conversation_id", "last_seq", "read_seq",
	"level", "unread_seqs", "category", "mentions_seqs", "marked_unread", "unread_count", "mentions_count",
}

const required = 4

// Reader reads the rows of a file, in one of two formats. The first line that is not
// blank decides: '{' means NDJSON.
//
// CSV: a header names the fields, in any order. Each line is a row; values in double
// quotes may contain commas. Lists are seqs and ranges of seqs, separated by spaces:
// "7 9-12".
//
// NDJSON: each line is an object with the same fields. Lists are arrays of numbers.
//
// An empty value, null in NDJSON, is 0 for read_seq, an empty list, and the default for
// the others. Without the fields unread_seqs and unread_count, every message after read_seq
// is unread.
//
// The exports of other systems have formats of their own: see [Format].
type Reader struct {
	// Empty says what an empty list of unread messages means.
	Empty EmptyUnread
	// LeftOut counts what was left out, since the system that it comes from would not
	// count it, by the reason.
	LeftOut map[string]int64

	lines *traffic.Lines
	// parse adds the rows of a line to pending; nil before the first.
	parse   func(line []byte) error
	pending []Row
	// columns are the fields by column of CSV.
	columns []string
	values  []string
}

// NewReader returns a reader of r. channels are those of a Mattermost export, nil for other
// formats.
func NewReader(r io.Reader, format Format, channels *channels) *Reader {
	reader := &Reader{lines: traffic.NewLines(r), LeftOut: map[string]int64{}}
	switch format {
	case Mattermost:
		reader.parse = func(line []byte) error { return reader.parseMattermost(line, channels) }
	case RocketChat:
		reader.parse = reader.parseRocketChat
	case States:
	}
	return reader
}

// errHeader is final: no line can be read without a header.
type errHeader struct{ error }

// Line returns the number of the last line that was read.
func (r *Reader) Line() int { return r.lines.Number }

// Next returns the next row, or io.EOF after the last. After a [*FieldError] the lines
// that follow can still be read. Any other error is final.
func (r *Reader) Next() (Row, error) {
	for len(r.pending) == 0 {
		line, err := r.lines.Next()
		if err != nil {
			return Row{}, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if r.parse == nil {
			if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) {
				if err := r.readHeader(string(line)); err != nil {
					return Row{}, errHeader{err}
				}
				r.parse = r.parseCSV
				continue
			}
			r.parse = r.parseObject
		}
		if err := r.parse(line); err != nil {
			r.pending = r.pending[:0] // a line counts whole or not at all
			return Row{}, err
		}
	}
	next := r.pending[0]
	r.pending = r.pending[1:]
	return next, nil
}

// leave counts a row that is left out.
func (r *Reader) leave(reason string) { r.LeftOut[reason]++ }

// add completes and adds a row.
func (r *Reader) add(row Row, s stated) error {
	row.Line = r.lines.Number
	err := row.complete(s)
	r.pending = append(r.pending, row)
	return err
}

func (r *Reader) readHeader(line string) error {
	names, err := splitCSV(nil, line)
	if err != nil {
		return err
	}
	for i, name := range names {
		name = strings.TrimSpace(name)
		switch {
		case !slices.Contains(fields, name):
			return fmt.Errorf("the header names %.40q, which is not a field: those are %s", name, strings.Join(fields, ", "))
		case slices.Contains(r.columns, name):
			return fmt.Errorf("the header names %s twice", name)
		}
		names[i] = name
		r.columns = append(r.columns, name)
	}
	for _, name := range fields[:required] {
		if !slices.Contains(r.columns, name) {
			return fmt.Errorf("the header lacks %s", name)
		}
	}
	return nil
}

func (r *Reader) parseCSV(line []byte) (err error) {
	if r.values, err = splitCSV(r.values[:0], string(line)); err != nil {
		return err
	}
	if len(r.values) != len(r.columns) {
		return wrong("line", "has %d values, the header %d", len(r.values), len(r.columns))
	}
	var row Row
	s := stated{empty: r.Empty}
	for i, name := range r.columns {
		v := r.values[i]
		switch name {
		case "user_id":
			row.UserID = v
		case "conversation_id":
			row.ConversationID = v
		case "last_seq":
			row.LastSeq, err = parseSeq(name, v)
		case "read_seq":
			if s.read = v != ""; s.read {
				row.ReadSeq, err = parseSeq(name, v)
			}
		case "level":
			row.Level = events.Level(v)
		case "unread_seqs":
			s.listed = true
			row.Unread, err = parseSeqs(name, v)
		case "category":
			row.Category = v
		case "mentions_seqs":
			row.Mentions, err = parseSeqs(name, v)
		case "marked_unread":
			row.MarkedUnread, err = parseBool(name, v)
		case "unread_count":
			s.count, err = parseCount(name, v)
		case "mentions_count":
			s.mentions, err = parseCount(name, v)
		}
		if err != nil {
			return err
		}
	}
	return r.add(row, s)
}

// splitCSV appends the values of a line to values.
func splitCSV(values []string, line string) ([]string, error) {
	for {
		if !strings.HasPrefix(line, `"`) {
			value, rest, more := strings.Cut(line, ",")
			if strings.Contains(value, `"`) {
				return nil, wrong("line", "a double quote within a value: put the value in double quotes, and each double quote in it twice")
			}
			values = append(values, value)
			if !more {
				return values, nil
			}
			line = rest
			continue
		}
		var value strings.Builder
		for line = line[1:]; ; {
			part, rest, closed := strings.Cut(line, `"`)
			if !closed {
				return nil, wrong("line", "a double quote is not closed: no value may contain a line break")
			}
			value.WriteString(part)
			if line = rest; !strings.HasPrefix(line, `"`) {
				break
			}
			value.WriteByte('"')
			line = line[1:]
		}
		values = append(values, value.String())
		switch {
		case line == "":
			return values, nil
		case line[0] != ',':
			return nil, wrong("line", "want a comma after a value in double quotes")
		}
		line = line[1:]
	}
}

func parseSeq(field, v string) (int64, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case v == "":
		return 0, wrong(field, "is required")
	case err != nil:
		return 0, wrong(field, "must be a whole number, is %.40q", v)
	}
	return n, nil
}

// parseCount reads a number of messages, nil for an empty value.
func parseCount(field, v string) (*int64, error) {
	if v == "" {
		return nil, nil
	}
	n, err := parseSeq(field, v)
	return &n, err
}

// parseSeqs reads seqs and ranges of seqs.
func parseSeqs(field, v string) (seqs []int64, err error) {
	for word := range strings.FieldsSeq(v) {
		first, last, isRange := strings.Cut(word, "-")
		var lo, hi int64
		if lo, err = parseSeq(field, first); err != nil {
			return nil, err
		}
		if hi = lo; isRange {
			if hi, err = parseSeq(field, last); err != nil {
				return nil, err
			}
		}
		switch {
		case hi < lo:
			return nil, wrong(field, "the range %.40q ends before it begins", word)
		case hi-lo >= MaxUnread-int64(len(seqs)):
			return nil, tooMany(field)
		}
		for seq := lo; ; seq++ { // hi may be the greatest of all
			seqs = append(seqs, seq)
			if seq == hi {
				break
			}
		}
	}
	return seqs, nil
}

func parseBool(field, v string) (bool, error) {
	switch v {
	case "", "false", "f", "0":
		return false, nil
	case "true", "t", "1":
		return true, nil
	}
	return false, wrong(field, "must be true or false, is %.40q", v)
}

// object is a line of NDJSON.
type object struct {
	UserID         given[string]  `json:"user_id"`
	ConversationID given[string]  `json:"conversation_id"`
	LastSeq        given[int64]   `json:"last_seq"`
	ReadSeq        given[int64]   `json:"read_seq"`
	Level          string         `json:"level"`
	UnreadSeqs     given[[]int64] `json:"unread_seqs"`
	Category       string         `json:"category"`
	MentionsSeqs   []int64        `json:"mentions_seqs"`
	MarkedUnread   bool           `json:"marked_unread"`
	UnreadCount    *int64         `json:"unread_count"`
	MentionsCount  *int64         `json:"mentions_count"`
}

// given tells null from absent.
type given[T any] struct {
	value         T
	present, null bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (g *given[T]) UnmarshalJSON(b []byte) error {
	g.present, g.null = true, string(b) == "null"
	return json.Unmarshal(b, &g.value)
}

func (r *Reader) parseObject(line []byte) error {
	var o object
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return describeJSON(line, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return wrong("line", "has more than one JSON object")
	}
	// Which of two values of a name counts, and what bad UTF-8 stands for, is a guess.
	if !jsontext.Value(line).IsValid() {
		_, err := jsontext.NewDecoder(bytes.NewReader(line)).ReadValue()
		syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
		if !ok {
			return wrong("line", "is not a JSON object: %v", err)
		}
		return wrong(cmp.Or(syntax.JSONPointer.LastToken(), "line"), "%v", strings.TrimPrefix(fmt.Sprint(syntax.Err), "jsontext: "))
	}
	for i, present := range []bool{o.UserID.present, o.ConversationID.present, o.LastSeq.present && !o.LastSeq.null, o.ReadSeq.present} {
		if !present {
			return wrong(fields[i], "is required")
		}
	}
	return r.add(Row{
		UserID: o.UserID.value, ConversationID: o.ConversationID.value, LastSeq: o.LastSeq.value, ReadSeq: o.ReadSeq.value,
		Level: events.Level(o.Level), Category: o.Category, Unread: o.UnreadSeqs.value, Mentions: o.MentionsSeqs, MarkedUnread: o.MarkedUnread,
	}, stated{o.UnreadSeqs.present, !o.ReadSeq.null, r.Empty, o.UnreadCount, o.MentionsCount})
}

// describeJSON names the field of an error. Errors of values in given do not name theirs,
// so each field is read again by itself.
func describeJSON(line []byte, err error) error {
	var raw map[string]json.RawMessage
	if syntax := json.Unmarshal(line, &raw); syntax != nil {
		return wrong("line", "is not a JSON object: %v", syntax)
	}
	for _, name := range fields {
		var value any
		switch name {
		case "last_seq", "read_seq", "unread_count", "mentions_count":
			value = new(int64)
		case "unread_seqs", "mentions_seqs":
			value = new([]int64)
		case "marked_unread":
			value = new(bool)
		default:
			value = new(string)
		}
		if b, ok := raw[name]; ok && json.Unmarshal(b, value) != nil {
			return wrong(name, "must be %s, is %.40s", kindOf(value), b)
		}
	}
	for name := range raw {
		if !slices.Contains(fields, name) {
			return wrong(name, "is not a field: those are %s", strings.Join(fields, ", "))
		}
	}
	return wrong("line", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

func kindOf(value any) string {
	switch value.(type) {
	case *int64:
		return "a whole number"
	case *[]int64:
		return "an array of whole numbers"
	case *bool:
		return "true or false"
	}
	return "a string"
}
