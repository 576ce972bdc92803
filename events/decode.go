package events

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/internal/base/rfc3339"
)

// Decode reads one event from its CloudEvents JSON form and validates it. Decode is strict, so that
// a misspelt field is always noticed. An attribute or data field that is unknown, given twice, or
// of the wrong type is an error. Every error is an [*InvalidError].
//
// Besides the attributes of [Event], Decode accepts and ignores the CloudEvents attributes
// datacontenttype (which must be JSON), dataschema and subject. An attribute that is null counts as
// absent, as CloudEvents requires. Data and the fields of data count as absent too if they are
// null. An element of an array must not be null. ADR 3 has the reasons.
func Decode(b []byte) (Event, error) {
	d := decoder{json: b}
	var e Event
	if present, ok := d.event(&e); ok {
		e.validate(&d.problems, present)
	}
	if len(d.problems) > 0 || d.broken || d.unchecked || d.wide && !utf8.Valid(b) {
		if fault := syntaxFault(b); fault != "" || d.broken { // if the JSON is broken, report only that, without errors of fields
			d.problems = nil
			d.problems.add("", "is not valid JSON: %s", fault)
		}
		if err := d.problems.err(); err != nil {
			return Event{}, err
		}
	}
	e.Data.AllCategories = e.Type.ofAll() && e.Data.Category == ""
	return e, nil
}

// syntaxFault says where and why the JSON of an event is broken. It returns "" if the JSON is
// valid.
func syntaxFault(b []byte) string {
	dec := jsontext.NewDecoder(bytes.NewBuffer(b))
	err := dec.SkipValue()
	if err == nil {
		if _, err = dec.ReadToken(); err == nil || errors.Is(err, io.EOF) {
			return ""
		}
	}
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF):
		return "it is empty"
	case !errors.As(err, &syntactic):
		return err.Error()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Sprintf("it ends too early at byte %d", syntactic.ByteOffset)
	}
	return fmt.Sprintf("%v at byte %d", syntactic.Err, syntactic.ByteOffset)
}

// decoder reads one event in one pass. It parses the bytes itself, since decoding is most of the
// cost of replaying the log and the tokens of jsontext would be slower. If a value has the wrong
// type, the decoder records a problem and skips the value. It uses jsontext only for rare cases:
// escapes, skipped values, and the reason why JSON is broken.
type decoder struct {
	json     []byte
	offset   int
	problems problems
	broken   bool // the JSON is broken, and the decoder stops reading
	// unchecked is true if the JSON may be invalid in a way that the decoder does not check: it
	// has an object with more than 32 members, where names may be repeated, or a number with a
	// leading zero. wide is true if the JSON has bytes outside ASCII, which may be invalid UTF-8.
	unchecked, wide bool
}

// attributes are the attributes that an event may have. The required attributes come first.
var attributes = [...]string{
	"specversion", "id", "source", "type", "data",
	"time", "traceparent", "tracestate", publishedBy, "datacontenttype", "dataschema", "subject", "data_base64",
}

const requiredAttributes = 5

// event reads the envelope and returns which fields of data were given. ok is false if the JSON
// is not an object.
func (d *decoder) event(e *Event) (present fields, ok bool) {
	var given fields // the attributes given: bit n stands for attributes[n]
	ok = d.object("", func(name []byte) {
		i := slices.Index(attributes[:], string(name))
		if i < 0 {
			d.unknown(string(name))
			return
		}
		given |= 1 << i
		switch name := attributes[i]; name {
		case "specversion":
			if v, ok := d.text(name); ok && string(v) != SpecVersion {
				d.problems.add(name, "must be %q, is %s", SpecVersion, quoteShort(string(v)))
			}
		case "id":
			e.ID = d.string(name)
		case "source":
			e.Source = d.string(name)
		case "type":
			e.Type = d.eventType(name)
		case "time":
			e.Time = d.time(name)
		case "traceparent":
			e.TraceParent = d.string(name)
		case "tracestate":
			e.TraceState = d.string(name)
		case publishedBy:
			e.PublishedBy = d.string(name)
		case "data":
			present = d.data(&e.Data)
		case "datacontenttype":
			if v, ok := d.text(name); ok && !isJSON(v) {
				d.problems.add(name, "must be application/json, is %s", quoteShort(string(v)))
			}
		case "dataschema", "subject":
			d.text(name)
		case "data_base64":
			d.problems.add(name, "is not supported: give data as JSON")
			d.skip()
		}
	})
	for i, name := range attributes[:requiredAttributes] {
		if ok && !given.has(i) {
			d.problems.add(name, "is required")
		}
	}
	if d.next(); d.offset < len(d.json) {
		d.problems.add("", "must be one JSON object, with nothing after it")
	}
	return present, ok
}

// eventType reads a type. It allocates nothing for known types.
func (d *decoder) eventType(path string) Type {
	v, _ := d.text(path)
	for i := range typeRules {
		if string(typeRules[i].eventType) == string(v) {
			return typeRules[i].eventType
		}
	}
	return Type(v)
}

// data reads the data object and returns which of its fields were given.
func (d *decoder) data(data *Data) (present fields) {
	values := data.values()
	next := 0 // the field expected next, since fields are often in this order
	d.object("data", func(name []byte) {
		i := next
		for range dataFields {
			if dataFields[i].name == string(name) {
				break
			}
			i = (i + 1) % len(dataFields)
		}
		if dataFields[i].name != string(name) {
			d.unknown("data." + string(name))
			return
		}
		present |= 1 << i
		next = (i + 1) % len(dataFields)
		path := dataFields[i].path
		switch v := values[i].(type) { // a method of d records a problem if its value is wrong
		case *string:
			*v = d.string(path)
		case *Level:
			*v = Level(d.string(path))
		case *[]string:
			*v = d.texts(path)
		case *[]int64:
			*v = d.numbers(path)
		case *int64:
			*v = d.int64(path)
		case *bool:
			*v = d.bool(path)
		case *time.Time:
			*v = d.time(path)
		case *Notification:
			d.notification(path, v)
		}
	})
	return present
}

// notification reads a notification. It reports every problem in the notification with the same
// path, the path of the notification as a whole.
func (d *decoder) notification(path string, n *Notification) {
	d.object(path, func(name []byte) {
		switch string(name) {
		case "title":
			n.Title = d.string(path)
		case "body":
			n.Body = d.string(path)
		case "data":
			n.Data = map[string]string{}
			d.object(path, func(key []byte) { n.Data[string(key)] = d.string(path) })
		default:
			d.problems.add(path, "must have no other members than title, body and data")
			d.skip()
		}
	})
}

// limit is the number of members of an object whose names the method object compares, to find
// repeated names. If an object has more members, syntaxFault checks the JSON as well.
const limit = 32

// object reads an object and calls member for each name whose value is not null. The function
// member must read the value. object reports whether it read a valid object.
func (d *decoder) object(path string, member func(name []byte)) bool {
	if !d.kind(path, '{', "a JSON object") {
		return false
	}
	d.offset++
	if d.next() == '}' {
		d.offset++
		return true
	}
	names := make([][]byte, 0, limit)
	for {
		if d.next() != '"' {
			return d.fail()
		}
		name := d.quoted()
		if len(names) == limit {
			d.unchecked = true
		} else {
			for _, other := range names {
				if bytes.Equal(name, other) {
					return d.fail()
				}
			}
			names = append(names, name)
		}
		if d.next() != ':' {
			return d.fail()
		}
		d.offset++
		if d.next(); !d.literal("null") {
			member(name)
		}
		if !d.more('}') {
			return !d.broken
		}
	}
}

// array reads an array and calls the function element for each index. The function must read the
// element at this index.
func (d *decoder) array(element func(i int)) {
	d.offset++
	if d.next() == ']' {
		d.offset++
		return
	}
	for i := 0; ; i++ {
		if element(i); !d.more(']') {
			return
		}
	}
}

// more reads the comma or the end after a member or element, and reports whether another
// member or element follows.
func (d *decoder) more(end byte) bool {
	c := d.next()
	if c != ',' && c != end {
		return d.fail()
	}
	d.offset++
	return c == ','
}

func (d *decoder) text(path string) (text []byte, ok bool) {
	if !d.kind(path, '"', "a string") {
		return nil, false
	}
	return d.quoted(), !d.broken
}

func (d *decoder) string(path string) string {
	text, _ := d.text(path)
	return string(text)
}

// quoted reads a string, which must come next.
func (d *decoder) quoted() []byte {
	escaped := false
	for i := d.offset + 1; i < len(d.json); i++ {
		switch c := d.json[i]; {
		case c == '"':
			raw := d.json[d.offset : i+1]
			d.offset = i + 1
			if !escaped {
				return raw[1 : len(raw)-1]
			}
			text, err := jsontext.AppendUnquote(nil, raw)
			if err != nil {
				d.fail()
			}
			return text
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			d.fail()
			return nil
		case c >= utf8.RuneSelf:
			d.wide = true
		}
	}
	d.fail()
	return nil
}

// texts reads an array of strings. An element that is not a string becomes "". texts reports such
// an element, except after element MaxUsers, where the array is longer than any field may be. Most
// of the returned strings share the memory of one large string: clone a string that is stored for
// long, or it keeps the large string in memory.
func (d *decoder) texts(path string) []string {
	if !d.kind(path, '[', "an array of strings") {
		return nil
	}
	begin := d.offset
	shared := string(d.json[begin:][:max(0, bytes.IndexByte(d.json[begin:], ']'))]) // the whole array, unless a string contains "]"
	texts := make([]string, 0, 1+min(strings.Count(shared, ","), MaxUsers))
	d.array(func(i int) {
		switch {
		case d.next() != '"': // build the path of the element only in this case, since this is costly
			t := ""
			if i <= MaxUsers {
				t = d.string(path + "[" + strconv.Itoa(i) + "]")
			} else {
				d.skip()
			}
			texts = append(texts, t)
		default:
			from := d.offset + 1 - begin
			text := d.quoted()
			if end := from + len(text); end < len(shared) && d.offset-begin == end+1 {
				texts = append(texts, shared[from:end])
			} else {
				texts = append(texts, string(text))
			}
		}
	})
	return texts
}

// numbers reads an array of numbers. After element MaxSeqs, where the array is longer than any
// field may be, numbers does not parse the elements: it returns 0 for each.
func (d *decoder) numbers(path string) (numbers []int64) {
	if !d.kind(path, '[', "an array of whole numbers") {
		return nil
	}
	d.array(func(i int) {
		if i > MaxSeqs {
			numbers = append(numbers, 0)
			d.skip()
			return
		}
		numbers = append(numbers, d.int64(path+"["+strconv.Itoa(i)+"]"))
	})
	return numbers
}

// maxDigits is the number of digits of the greatest seq.
const maxDigits = 19

// int64 reads a whole number, or a string with the digits of a whole number. JavaScript and many
// database drivers write numbers beyond 2^53 as strings.
func (d *decoder) int64(path string) int64 {
	c := d.next()
	if c != '"' && c != '-' && (c < '0' || c > '9') {
		d.wrong(path, "a whole number, or its digits in a string")
		return 0
	}
	var text []byte
	valid := true
	if c == '"' {
		text = d.quoted()
		valid = len(text) <= maxDigits && strings.Trim(string(text), "0123456789") == ""
	} else {
		text = d.number()
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || !valid {
		d.problems.add(path, "must be a whole number from 1 to %d, is %s", int64(1<<63-1), quoteShort(string(text)))
		return 0
	}
	return n
}

// number reads a number, which must come next.
func (d *decoder) number() []byte {
	begin := d.offset
	for d.offset < len(d.json) && strings.IndexByte("+-.0123456789Ee", d.json[d.offset]) >= 0 {
		d.offset++
	}
	text := d.json[begin:d.offset]
	if digits := bytes.TrimPrefix(text, []byte("-")); len(digits) > 1 && digits[0] == '0' {
		d.unchecked = true // a leading zero is invalid in JSON, unless a decimal point follows
	}
	return text
}

func (d *decoder) bool(path string) bool {
	d.next()
	if d.literal("true") {
		return true
	}
	if !d.literal("false") {
		d.wrong(path, "true or false")
	}
	return false
}

func (d *decoder) time(path string) time.Time {
	text, ok := d.text(path)
	if !ok {
		return time.Time{}
	}
	t, err := rfc3339.ParseAny(string(text)) // the log may have the zero time, which is an absent time
	if err != nil {
		d.problems.add(path, "must be an RFC 3339 time such as 2026-01-31T23:59:59Z, is %s", quoteShort(string(text)))
		return time.Time{}
	}
	return t.UTC()
}

// kind reports whether the next value begins with c. If not, it records the problem and skips
// the value.
func (d *decoder) kind(path string, c byte, want string) bool {
	if d.next() == c {
		return true
	}
	d.wrong(path, want)
	return false
}

// wrong records that the next value is not of the wanted kind, and skips it.
func (d *decoder) wrong(path, want string) {
	d.problems.add(path, "must be %s", want)
	d.skip()
}

func (d *decoder) unknown(path string) {
	d.problems.add(showPath(path), "is not a known field")
	d.skip()
}

// showPath makes a path that ends in a publisher's text safe to show and store: it shortens a
// long path and escapes control characters.
func showPath(path string) string {
	const limit = 128
	if len(path) > limit {
		path = cutText(path, limit) + "…"
	}
	if !strings.ContainsFunc(path, unicode.IsControl) {
		return path
	}
	return strings.Trim(strconv.Quote(path), `"`)
}

// next skips white space and returns the next byte without moving past this byte. At the end of the
// JSON it returns 0.
func (d *decoder) next() byte {
	for d.offset < len(d.json) {
		switch c := d.json[d.offset]; c {
		case ' ', '\t', '\r', '\n':
			d.offset++
		default:
			return c
		}
	}
	return 0
}

// literal reports whether word comes next, and skips it if so.
func (d *decoder) literal(word string) bool {
	if !bytes.HasPrefix(d.json[d.offset:], []byte(word)) {
		return false
	}
	d.offset += len(word)
	return true
}

func (d *decoder) skip() {
	dec := jsontext.NewDecoder(bytes.NewBuffer(d.json[d.offset:]))
	if dec.SkipValue() != nil {
		d.fail()
		return
	}
	d.offset += int(dec.InputOffset())
}

// fail records that the JSON is broken and ends reading. It returns false.
func (d *decoder) fail() bool {
	d.broken, d.offset = true, len(d.json)
	return false
}

// isJSON reports whether a media type is JSON. It ignores parameters.
func isJSON(mediaType []byte) bool {
	base, _, _ := bytes.Cut(mediaType, []byte(";"))
	base = bytes.ToLower(bytes.Trim(base, " \t\n\v\f\r")) // SQL trims only these, not other spaces of Unicode
	return bytes.Equal(base, []byte("application/json")) || bytes.HasSuffix(base, []byte("+json"))
}
