package events

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/badged/badged/internal/base/category"
)

// FieldError is the error of one field of an event.
type FieldError struct {
	// Field is the path of the field, such as "data.user_ids[3]"; it is empty if the error is
	// about the event as a whole.
	Field string `json:"field"`
	// Message says what is wrong, and what is expected. It is safe to show.
	Message string `json:"message"`
}

// Error implements error.
func (e FieldError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// InvalidError lists the invalid fields of a rejected event, at least one.
type InvalidError struct {
	Fields []FieldError
}

// Error implements error.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Error()
	}
	return "invalid event: " + strings.Join(parts, "; ")
}

// maxFieldErrors limits the number of fields in an InvalidError.
const maxFieldErrors = 20

// problems collects the first error of each field, for up to maxFieldErrors fields.
type problems []FieldError

func (p *problems) add(field, format string, args ...any) {
	if len(*p) < maxFieldErrors && !p.has(field) {
		*p = append(*p, FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
}

func (p *problems) has(field string) bool {
	return slices.ContainsFunc(*p, func(e FieldError) bool { return e.Field == field })
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &InvalidError{Fields: p}
}

// Validate returns an [*InvalidError] that names the invalid fields, or nil. Time may be zero,
// since an append sets it.
func (e *Event) Validate() error {
	// In a struct, a required field cannot be absent, only zero. So every required field counts as
	// present, and validate checks its value.
	rule, _ := ruleOf(e.Type)
	var p problems
	e.validate(&p, rule.required|e.Data.present())
	switch all := e.Data.AllCategories; {
	case all && (!e.Type.ofAll() || e.Data.Category != ""):
		p.add("data.category", "must be empty if AllCategories is set, which only a %s or %s may have", UserReadAll, UserSeenAll)
	case !all && e.Type.ofAll() && e.Data.Category == "":
		p.add("data.category", "must not be empty: to name every category, set AllCategories")
	}
	return p.err()
}

// publishedBy is the attribute with the name of the API key that published the event. It is an
// extension attribute, in the terms of CloudEvents.
const publishedBy = "publishedby"

// CheckReserved returns an [*InvalidError] if e has a type or an attribute that only badged
// may write.
func (e *Event) CheckReserved() error {
	const message = "is written by badged itself only"
	field := ""
	if rule, _ := ruleOf(e.Type); rule.reserved {
		field = "type"
	} else if e.PublishedBy != "" {
		field = publishedBy
	}
	if field == "" {
		return nil
	}
	return &InvalidError{Fields: []FieldError{{Field: field, Message: message}}}
}

// validate adds the errors of e to p. present are the fields of data that were given.
func (e *Event) validate(p *problems, present fields) {
	p.text("id", e.ID, MaxNameBytes)
	p.text("source", e.Source, MaxNameBytes)
	if e.TraceParent != "" {
		p.text("traceparent", e.TraceParent, MaxTraceBytes)
	}
	if e.TraceState != "" {
		p.text("tracestate", e.TraceState, MaxTraceBytes)
	}
	if e.PublishedBy != "" {
		p.text(publishedBy, e.PublishedBy, MaxNameBytes)
	}
	if y := e.Time.UTC().Year(); y < 1 || y > 9999 { // of the time in UTC, since it is encoded in UTC
		p.add("time", "must lie in the years 1 to 9999")
	}

	rule, ok := ruleOf(e.Type)
	if !ok {
		if e.Type == "" {
			p.add("type", "is required")
		} else {
			p.add("type", "%s is not a type of event", quoteShort(string(e.Type)))
		}
		return
	}
	if p.has("data") { // data is absent or not an object: do not report errors of its fields too
		return
	}
	if rule.required&^present != 0 || present&^rule.allowed != 0 {
		for i := range dataFields {
			switch {
			case rule.required.has(i) && !present.has(i):
				p.add(dataFields[i].path, "is required")
			case present.has(i) && !rule.allowed.has(i):
				p.add(dataFields[i].path, "is not a field of %s", e.Type)
			}
		}
	}
	e.Data.validate(p, present&rule.allowed, rule.allowed)
}

// validate adds the errors of d to p. It checks the fields in `given`. `allowed` has the fields
// that the type of the event may have.
func (d *Data) validate(p *problems, given, allowed fields) {
	for i, value := range d.values() {
		if !given.has(i) {
			continue
		}
		f := &dataFields[i]
		switch v := value.(type) {
		case *string:
			if p.text(f.path, *v, f.limit); f.isPath {
				p.category(f.path, *v)
			}
		case *[]string:
			switch {
			case f.allowed == 0:
				p.users(f.path, *v)
			case f.allowed&allowed != 0:
				p.mentioned(f.path, *v, d.UserIDs)
			case len(*v) > 0:
				p.users(f.path, *v)
			}
		case *[]int64:
			p.seqs(f.path, *v)
		case *int64:
			if *v < 1 {
				p.add(f.path, "must be at least 1, is %d", *v)
			}
		case *Level:
			if !slices.Contains(f.enum, string(*v)) {
				p.add(f.path, `must be one of "%s", is %s`, strings.Join(f.enum, `", "`), quoteShort(string(*v)))
			}
		case *time.Time:
			if y := v.UTC().Year(); y < 2000 || y > 9999 { // a time in a wrong unit, such as seconds given as milliseconds, mostly has an earlier year
				p.add(f.path, "must lie in the years 2000 to 9999")
			}
		case *Notification:
			if reason := v.check(); reason != "" {
				p.add(f.path, "%s", reason)
			}
		}
	}
}

// check returns what is wrong with a notification, "" if nothing is.
func (n *Notification) check() string {
	shown, data := len(n.Title)+len(n.Body), 0
	plain := isStorable(n.Title) && isStorable(n.Body)
	for key, value := range n.Data {
		data += len(key) + len(value)
		plain = plain && isStorable(key) && isStorable(value)
	}
	switch {
	case shown == 0:
		return "must have a title or a body"
	case shown > MaxNotificationBytes:
		return fmt.Sprintf("must have at most %d bytes of title and body, has %d", MaxNotificationBytes, shown)
	case data > MaxNotificationDataBytes:
		return fmt.Sprintf("must have at most %d bytes of data, has %d", MaxNotificationDataBytes, data)
	case !plain:
		return "must be valid UTF-8 without zero bytes"
	}
	return ""
}

// isStorable reports whether Postgres can store a text.
func isStorable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func (p *problems) users(field string, users []string) {
	if len(users) == 0 {
		p.add(field, "must name at least one user")
	}
	if len(users) > MaxUsers {
		p.add(field, "must name at most %d users, names %d", MaxUsers, len(users))
		return
	}
	for i, u := range users {
		if reason := CheckID(u); reason != "" {
			p.add(fmt.Sprintf("%s[%d]", field, i), "%s", reason)
		}
	}
}

func (p *problems) seqs(field string, seqs []int64) {
	if len(seqs) == 0 {
		p.add(field, "must name at least one message")
	}
	if len(seqs) > MaxSeqs {
		p.add(field, "must name at most %d messages, names %d", MaxSeqs, len(seqs))
		return
	}
	for i, seq := range seqs {
		if seq < 1 {
			p.add(fmt.Sprintf("%s[%d]", field, i), "must be at least 1, is %d", seq)
		}
	}
}

func (p *problems) mentioned(field string, mentioned, users []string) {
	if len(mentioned) == 0 {
		return
	}
	if len(mentioned) > MaxUsers {
		p.add(field, "must name at most %d users, names %d", MaxUsers, len(mentioned))
		return
	}
	among := make(map[string]struct{}, len(users))
	for _, u := range users {
		among[u] = struct{}{}
	}
	for i, u := range mentioned {
		if _, ok := among[u]; !ok {
			p.add(fmt.Sprintf("%s[%d]", field, i), "%s is not among data.user_ids", quoteShort(u))
		}
	}
}

func (p *problems) text(field, s string, maxBytes int) {
	if reason := checkText(s, maxBytes); reason != "" {
		p.add(field, "%s", reason)
	}
}

func (p *problems) category(field, s string) {
	if reason := category.Fault(s); reason != "" {
		p.add(field, "%s", reason)
	}
}

// CheckID returns why s is not a valid id of a user, conversation, message or sender, or "" if
// s is valid. An id is 1–128 bytes of UTF-8 without control characters.
func CheckID(s string) string { return checkText(s, MaxIDBytes) }

// CheckCategory returns why s is not a valid category, or "" if s is valid. A category is a
// path of one to eight parts with slashes in between, each of 1–64 characters. It has at most
// 255 bytes of UTF-8 without control characters.
func CheckCategory(s string) string { return cmp.Or(checkText(s, MaxCategoryBytes), category.Fault(s)) }

// Covers reports whether the category `path` covers the category `other`: they are equal, or
// `other` begins with `path` and a slash.
func Covers(path, other string) bool { return category.Covers(path, other) }

func checkText(s string, maxBytes int) string {
	switch {
	case s == "":
		return "must not be empty"
	case len(s) > maxBytes:
		return fmt.Sprintf("must have at most %d bytes, has %d", maxBytes, len(s))
	case isPlain(s): // fast, and true for most texts
		return ""
	case !utf8.ValidString(s):
		return "must be valid UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "must not hold control characters"
	}
	return ""
}

// isPlain reports whether s is printable ASCII.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// quoteShort quotes s for a message, and cuts it if it is long.
func quoteShort(s string) string {
	const limit = 64
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	return strconv.Quote(cutText(s, limit)) + "…"
}

// cutText returns the first n bytes of s. It returns up to three bytes fewer if it would otherwise
// split a character. s must have more than n bytes.
func cutText(s string, n int) string {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Check returns a [*BatchError] if events are invalid. Unlike [Log.Append], it accepts types and
// attributes that only badged may write.
func Check(evs []Event) error {
	_, err := checkAll(evs, true)
	return err
}

// checkAll validates evs. If internal is true, it accepts types and attributes that only badged may
// write. toRooms is true if at least one of the events reaches all members of a room.
func checkAll(evs []Event, internal bool) (toRooms bool, err error) {
	var bad BatchError
	for i := range evs {
		err := evs[i].Validate()
		if err == nil && !internal {
			err = evs[i].CheckReserved()
		}
		if invalid, ok := errors.AsType[*InvalidError](err); ok {
			bad.Events = append(bad.Events, IndexedError{Index: i, Err: invalid})
		}
		toRooms = toRooms || len(evs[i].Data.UserIDs) == 0
	}
	if len(bad.Events) > 0 {
		return false, &bad
	}
	return toRooms, nil
}
