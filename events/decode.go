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

	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/internal/rfc3339"
)

// Decode reads one event from its CloudEvents JSON form and validates it. It
// is strict: an attribute or data field that is not defined, given twice, or
// of the wrong type is an error, so that a misspelt field is never silently
// without effect. The error is an [*InvalidError].
//
// Besides the attributes of [Event] it accepts, and ignores, the CloudEvents
// attributes datacontenttype (which must be JSON), dataschema and subject. An
// attribute that is null counts as absent, as CloudEvents requires. The same goes
// for data and for each of its fields, but not for elements of arrays. ADR 3 has the reasons.
func Decode(b []byte) (Event, error) {
	if e, ok := decodeQuick(b); ok {
		return e, nil
	}
	return decode(b)
}

// decode decodes an event in any JSON form.
func decode(b []byte) (Event, error) {
	var p problems
	var e Event
	dec := jsontext.NewDecoder(bytes.NewBuffer(b))
	d := decoder{dec: dec, problems: &p}
	present, isObject := d.event(&e)
	if d.err == nil {
		if _, err := dec.ReadToken(); err == nil {
			p.add("", "must be one JSON object, with nothing after it")
		} else if !errors.Is(err, io.EOF) {
			d.err = err
		}
	}
	if d.err != nil {
		p = nil // field errors of half an event only distract
		p.add("", "is not valid JSON: %s", describeSyntax(d.err))
		return Event{}, p.err()
	}
	if isObject {
		e.validate(&p, present)
	}
	if err := p.err(); err != nil {
		return Event{}, err
	}
	e.Data.AllCategories = e.Type.ofAll() && e.Data.Category == ""
	return e, nil
}

// describeSyntax says where the JSON broke without the decoder's own prefix.
func describeSyntax(err error) string {
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

// decoder walks the tokens of one event. A value of the wrong type becomes a
// problem and is skipped; err is set once the JSON itself is broken, and
// nothing is read after that.
type decoder struct {
	dec      *jsontext.Decoder
	problems *problems
	err      error
}

// event reads the envelope and returns which fields of data were given; ok is
// false if there is no envelope.
func (d *decoder) event(e *Event) (present fields, ok bool) {
	var hasSpecVersion, hasID, hasSource, hasType, hasData bool
	ok = d.object("", func(name string) {
		switch name {
		case "specversion":
			hasSpecVersion = true
			if v, ok := d.text(name); ok && v != SpecVersion {
				d.problems.add(name, "must be %q, is %s", SpecVersion, quoteShort(v))
			}
		case "id":
			hasID = true
			e.ID, _ = d.text(name)
		case "source":
			hasSource = true
			e.Source, _ = d.text(name)
		case "type":
			hasType = true
			v, _ := d.text(name)
			e.Type = Type(v)
		case "time":
			e.Time = d.time(name)
		case "traceparent":
			e.TraceParent, _ = d.text(name)
		case "tracestate":
			e.TraceState, _ = d.text(name)
		case publishedBy:
			e.PublishedBy, _ = d.text(name)
		case "data":
			hasData = true
			present = d.data(&e.Data)
		case "datacontenttype":
			if v, ok := d.text(name); ok && !isJSON(v) {
				d.problems.add(name, "must be application/json, is %s", quoteShort(v))
			}
		case "dataschema", "subject":
			d.text(name)
		case "data_base64":
			d.problems.add(name, "is not supported: give data as JSON")
			d.skip()
		default:
			d.unknown(name)
		}
	})
	if !ok {
		return 0, false
	}
	for _, a := range []struct {
		name string
		has  bool
	}{
		{"specversion", hasSpecVersion},
		{"id", hasID},
		{"source", hasSource},
		{"type", hasType},
		{"data", hasData},
	} {
		if !a.has {
			d.problems.add(a.name, "is required")
		}
	}
	return present, true
}

// data reads the data object and returns which of its fields were given.
func (d *decoder) data(data *Data) (present fields) {
	d.object("data", func(name string) {
		i := slices.IndexFunc(dataFields, func(f dataField) bool { return f.name == name })
		if i < 0 {
			d.unknown("data." + name)
			return
		}
		present |= 1 << i
		path := dataFields[i].path
		switch v := data.values()[i].(type) { // d notes what is wrong with a value
		case *string:
			*v, _ = d.text(path)
		case *Level:
			level, _ := d.text(path)
			*v = Level(level)
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
			*v = d.notification(path)
		}
	})
	return present
}

// notification reads a notification. All its problems are those of the field.
func (d *decoder) notification(path string) (n Notification) {
	d.object(path, func(name string) {
		switch name {
		case "title":
			n.Title, _ = d.text(path)
		case "body":
			n.Body, _ = d.text(path)
		case "data":
			n.Data = map[string]string{}
			d.object(path, func(key string) { n.Data[key], _ = d.text(path) })
		default:
			d.problems.add(path, "must have no other members than title, body and data")
			d.skip()
		}
	})
	return n
}

// object reads an object and calls member for each name whose value is not
// null; member must read the value. It reports whether there was an object.
func (d *decoder) object(path string, member func(name string)) bool {
	if d.err != nil || !d.kind(path, jsontext.KindBeginObject, "a JSON object") {
		return false
	}
	d.read() // the brace
	for d.err == nil && d.dec.PeekKind() != jsontext.KindEndObject {
		name := d.read()
		if d.err != nil {
			return false
		}
		if d.dec.PeekKind() == jsontext.KindNull {
			d.skip()
			continue
		}
		member(name.String())
	}
	d.read()
	return d.err == nil
}

func (d *decoder) text(path string) (string, bool) {
	if !d.kind(path, jsontext.KindString, "a string") {
		return "", false
	}
	t := d.read()
	if d.err != nil {
		return "", false
	}
	return t.String(), true
}

// texts reads an array of strings. Past the most that any field may hold it
// only counts.
func (d *decoder) texts(path string) []string {
	if !d.kind(path, jsontext.KindBeginArray, "an array of strings") {
		return nil
	}
	d.read()
	texts := make([]string, 0, 1)
	for d.err == nil && d.dec.PeekKind() != jsontext.KindEndArray {
		switch {
		case len(texts) > MaxUsers:
			texts = append(texts, "")
			d.skip()
		case d.dec.PeekKind() == jsontext.KindString:
			texts = append(texts, d.read().String())
		default: // only now is the path worth building
			t, _ := d.text(path + "[" + strconv.Itoa(len(texts)) + "]")
			texts = append(texts, t)
		}
	}
	d.read()
	return texts
}

// numbers reads an array of numbers. Past the most that any field may hold it only
// counts.
func (d *decoder) numbers(path string) []int64 {
	if !d.kind(path, jsontext.KindBeginArray, "an array of whole numbers") {
		return nil
	}
	d.read()
	var numbers []int64
	for d.err == nil && d.dec.PeekKind() != jsontext.KindEndArray {
		if len(numbers) > MaxSeqs {
			numbers = append(numbers, 0)
			d.skip()
			continue
		}
		numbers = append(numbers, d.int64(path+"["+strconv.Itoa(len(numbers))+"]"))
	}
	d.read()
	return numbers
}

// maxDigits is the number of digits of the greatest seq.
const maxDigits = 19

// int64 reads a whole number, or its digits in a string: what JavaScript and many drivers
// of databases make of numbers past 2^53.
func (d *decoder) int64(path string) int64 {
	text := d.dec.PeekKind() == jsontext.KindString
	if !text && !d.kind(path, jsontext.KindNumber, "a whole number, or its digits in a string") {
		return 0
	}
	t := d.read()
	if d.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(t.String(), 10, 64)
	if text && (len(t.String()) > maxDigits || strings.Trim(t.String(), "0123456789") != "") {
		err = strconv.ErrSyntax
	}
	if err != nil {
		d.problems.add(path, "must be a whole number from 1 to %d, is %s", int64(1<<63-1), quoteShort(t.String()))
		return 0
	}
	return n
}

func (d *decoder) bool(path string) bool {
	if k := d.dec.PeekKind(); k == jsontext.KindTrue || k == jsontext.KindFalse {
		d.read()
		return k == jsontext.KindTrue
	}
	d.kind(path, jsontext.KindTrue, "true or false")
	return false
}

func (d *decoder) time(path string) time.Time {
	s, ok := d.text(path)
	if !ok {
		return time.Time{}
	}
	t, err := rfc3339.Parse(s)
	if err != nil {
		d.problems.add(path, "must be an RFC 3339 time such as 2026-01-31T23:59:59Z, is %s", quoteShort(s))
		return time.Time{}
	}
	return t.UTC()
}

// kind reports whether the next value is of kind k; otherwise it notes the
// problem and skips the value.
func (d *decoder) kind(path string, k jsontext.Kind, want string) bool {
	got := d.dec.PeekKind()
	if got == k {
		return true
	}
	if got == jsontext.KindInvalid { // broken JSON: let read find out how
		d.read()
		return false
	}
	d.problems.add(path, "must be %s", want)
	d.skip()
	return false
}

func (d *decoder) unknown(path string) {
	d.problems.add(showPath(path), "is not a known field")
	d.skip()
}

// showPath makes a path that ends in a publisher's text safe to show and
// store: it shortens long ones and escapes control characters.
func showPath(path string) string {
	const most = 128
	if len(path) > most {
		path = cutText(path, most) + "…"
	}
	if !strings.ContainsFunc(path, unicode.IsControl) {
		return path
	}
	return strings.Trim(strconv.Quote(path), `"`)
}

func (d *decoder) read() jsontext.Token {
	if d.err != nil {
		return jsontext.Token{}
	}
	t, err := d.dec.ReadToken()
	if err != nil {
		d.err = err
	}
	return t
}

func (d *decoder) skip() {
	if d.err == nil {
		d.err = d.dec.SkipValue()
	}
}

// isJSON reports whether a media type is JSON, parameters aside.
func isJSON(mediaType string) bool {
	base, _, _ := bytes.Cut([]byte(mediaType), []byte(";"))
	base = bytes.ToLower(bytes.Trim(base, " \t\n\v\f\r")) // not Unicode's spaces, which SQL does not trim
	return bytes.Equal(base, []byte("application/json")) || bytes.HasSuffix(base, []byte("+json"))
}
