package importing

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/traffic"
)

// fields are the names of the fields of a row. A file must have the first four.
var fields = []string{
	"user_id", "conversation_id", "last_seq", "read_seq",
	"level", "unread_seqs", "category", "mentions_seqs", "marked_unread", "unread_count", "mentions_count",
}

const required = 4

// Reader reads the rows of a file in one of two formats. If the first line that is not blank
// begins with '{', the format is NDJSON, else CSV.
//
// CSV: the header names the fields, in any order. Each further line is a row; values in double
// quotes may contain commas. Lists consist of seqs and ranges of seqs, separated by spaces: "7
// 9-12".
//
// NDJSON: each line is an object with the same fields. Lists are arrays of numbers.
//
// user_id, conversation_id and last_seq need a value. For the other fields, an empty value in CSV
// or null in NDJSON means the default. The default of read_seq is 0, or last_seq minus unread_count
// if the row has unread_count. The default of a list is the empty list. If a row has neither
// unread_seqs nor unread_count, every message after read_seq is unread.
//
// Exports of other systems have their own formats: see [Format].
type Reader struct {
	// Empty defines what an empty list of unread messages means.
	Empty EmptyUnread
	// LeftOut counts the rows that were skipped, by reason: for example, the channel is archived,
	// or the export does not say up to which message the user has read.
	LeftOut map[string]int64

	lines *traffic.Lines
	// parse adds the rows of a line to pending. It is nil until the first line shows the format.
	parse   func(line []byte) error
	pending []Row
	// columns has the field of each CSV column.
	columns []string
	values  []string
}

// NewReader returns a reader of rows. channels has the channels of a Mattermost export; it is
// nil for other formats.
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

// errHeader is an error in the CSV header. It is final, because the other lines cannot be parsed
// without the header.
type errHeader struct{ error }

// Line returns the number of the last line that was read.
func (r *Reader) Line() int { return r.lines.Number }

// Next returns the next row, or io.EOF after the last row. After a [*FieldError] Next can be called
// again and continues with the next line. Any other error is final.
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
			r.pending = r.pending[:0] // a bad line adds no rows
			return Row{}, err
		}
	}
	next := r.pending[0]
	r.pending = r.pending[1:]
	return next, nil
}

// skip counts a skipped row.
func (r *Reader) skip(reason string) { r.LeftOut[reason]++ }

// add completes a row and adds it to pending.
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
			return fmt.Errorf("the header names %.40q, which is not a field; the fields are %s", name, strings.Join(fields, ", "))
		case slices.Contains(r.columns, name):
			return fmt.Errorf("the header names %s twice", name)
		}
		names[i] = name
		r.columns = append(r.columns, name)
	}
	for _, name := range fields[:required] {
		if !slices.Contains(r.columns, name) {
			return fmt.Errorf("the header does not name %s", name)
		}
	}
	return nil
}

func (r *Reader) parseCSV(line []byte) (err error) {
	if r.values, err = splitCSV(r.values[:0], string(line)); err != nil {
		return err
	}
	if len(r.values) != len(r.columns) {
		return wrong("line", "has %d values, but the header has %d", len(r.values), len(r.columns))
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

// parseCount parses a number of messages. An empty value is nil.
func parseCount(field, v string) (*int64, error) {
	if v == "" {
		return nil, nil
	}
	n, err := parseSeq(field, v)
	return &n, err
}

// parseSeqs parses a list of seqs and ranges of seqs, such as "7 9-12".
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
		for seq := lo; ; seq++ { // hi may be the greatest int64
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

// given is the value of a JSON field; it distinguishes null from an absent field.
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
	if err := json.Unmarshal(line, &o, json.RejectUnknownMembers(true)); err != nil {
		return describeJSON(line, err)
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

// describeJSON converts a decoding error of a line to an error that names the field.
func describeJSON(line []byte, err error) error {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		// Do not accept a duplicate name or invalid UTF-8: the intended value is not certain.
		if errors.Is(err, jsontext.ErrDuplicateName) || !utf8.Valid(line) {
			return wrong(cmp.Or(syntax.JSONPointer.LastToken(), "line"), "%v", strings.TrimPrefix(fmt.Sprint(syntax.Err), "jsontext: "))
		}
		return wrong("line", "is not a JSON object: %v", syntax.Err)
	}
	var pointer jsontext.Pointer
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		pointer = semantic.JSONPointer
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(string(pointer), "/"), "/")
	switch {
	case name == "":
		return wrong("line", "is not a JSON object: %v", err)
	case errors.Is(err, json.ErrUnknownName):
		return wrong(name, "is not a field; the fields are %s", strings.Join(fields, ", "))
	}
	var raw map[string]jsontext.Value
	_ = json.Unmarshal(line, &raw) // the line is valid JSON
	return wrong(name, "must be %s, is %.40s", kindOf(name), raw[name])
}

func kindOf(field string) string {
	switch field {
	case "last_seq", "read_seq", "unread_count", "mentions_count":
		return "a whole number"
	case "unread_seqs", "mentions_seqs":
		return "an array of whole numbers"
	case "marked_unread":
		return "true or false"
	}
	return "a string"
}
