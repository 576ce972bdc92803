package events

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FieldError is the error of one field of an event.
type FieldError struct {
	// Field is the path of the field, such as "data.user_ids[3]", or empty
	// where the event as a whole is at fault.
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

// InvalidError lists the fields at fault of a rejected event, at least one.
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

// maxFieldErrors bounds the size of an InvalidError.
const maxFieldErrors = 20

// problems collects field errors, the first of each field, up to
// maxFieldErrors.
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

// fields is a set of fields of Data.
type fields uint16

const (
	fieldConversationID fields = 1 << iota
	fieldUserIDs
	fieldSeq
	fieldUpToSeq
	fieldMentionedUserIDs
	fieldCategory
	fieldMessageID
	fieldSenderID
	fieldLevel
	fieldByApp
)

// fieldNames are the JSON names of the fields of Data, in the order in which
// they are checked and encoded, and how they are written behind another member.
var fieldNames = [...]struct {
	field  fields
	name   string
	quoted string
}{
	{fieldConversationID, "conversation_id", `,"conversation_id":`},
	{fieldUserIDs, "user_ids", `,"user_ids":`},
	{fieldSeq, "seq", `,"seq":`},
	{fieldUpToSeq, "up_to_seq", `,"up_to_seq":`},
	{fieldMentionedUserIDs, "mentioned_user_ids", `,"mentioned_user_ids":`},
	{fieldCategory, "category", `,"category":`},
	{fieldMessageID, "message_id", `,"message_id":`},
	{fieldSenderID, "sender_id", `,"sender_id":`},
	{fieldLevel, "level", `,"level":`},
	{fieldByApp, "by_app", `,"by_app":`},
}

// schemaOf returns which fields the data of an event of type t must and may
// have; ok is false for a type that does not exist.
func schemaOf(t Type) (required, optional fields, ok bool) {
	switch t {
	case MessageDelivered:
		return fieldConversationID | fieldUserIDs | fieldSeq,
			fieldMentionedUserIDs | fieldCategory | fieldMessageID | fieldSenderID, true
	case ConversationRead:
		return fieldConversationID | fieldUserIDs | fieldUpToSeq, fieldByApp, true
	case ConversationExpired:
		return fieldConversationID | fieldUserIDs | fieldUpToSeq, 0, true
	case MessageRecalled:
		return fieldConversationID | fieldUserIDs | fieldSeq, 0, true
	case ConversationMarkedUnread:
		return fieldConversationID | fieldUserIDs, 0, true
	case ConversationLeft:
		return fieldConversationID | fieldUserIDs, fieldUpToSeq, true
	case ConversationLevelSet:
		return fieldConversationID | fieldUserIDs | fieldLevel, 0, true
	case UserReadAll:
		return fieldUserIDs, fieldCategory, true
	}
	return 0, 0, false
}

// present returns the fields of d that are not zero.
func (d *Data) present() fields {
	return fieldConversationID.when(d.ConversationID != "") |
		fieldUserIDs.when(len(d.UserIDs) > 0) |
		fieldSeq.when(d.Seq != 0) |
		fieldUpToSeq.when(d.UpToSeq != 0) |
		fieldMentionedUserIDs.when(len(d.MentionedUserIDs) > 0) |
		fieldCategory.when(d.Category != "") |
		fieldMessageID.when(d.MessageID != "") |
		fieldSenderID.when(d.SenderID != "") |
		fieldLevel.when(d.Level != "") |
		fieldByApp.when(d.ByApp)
}

// when returns set, or the empty set.
func (set fields) when(has bool) fields {
	if has {
		return set
	}
	return 0
}

// Validate returns an [*InvalidError] that names every field at fault, or nil.
// The time may be zero: it is set when the event is appended.
func (e *Event) Validate() error {
	// In a struct a required field cannot be absent, only zero, and is judged
	// by its value.
	required, _, _ := schemaOf(e.Type)
	var p problems
	e.validate(&p, required|e.Data.present())
	return p.err()
}

// checkPublished returns an [*InvalidError] if only badged may write the type of e.
func (e *Event) checkPublished() error {
	if e.Type != ConversationExpired {
		return nil
	}
	return &InvalidError{Fields: []FieldError{{Field: "type", Message: "is written by badged itself only"}}}
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
	if y := e.Time.UTC().Year(); y < 1 || y > 9999 { // it is encoded in UTC
		p.add("time", "must lie in the years 1 to 9999")
	}

	required, optional, ok := schemaOf(e.Type)
	if !ok {
		if e.Type == "" {
			p.add("type", "is required")
		} else {
			p.add("type", "%s is not a type of event", quoteShort(string(e.Type)))
		}
		return
	}
	if p.has("data") { // absent, or no object: its fields go without saying
		return
	}
	for _, f := range fieldNames {
		switch {
		case required&f.field != 0 && present&f.field == 0:
			p.add("data."+f.name, "is required")
		case (required|optional)&f.field == 0 && present&f.field != 0:
			p.add("data."+f.name, "is not a field of %s", e.Type)
		}
	}
	e.Data.validate(p, present&(required|optional))
}

// validate adds the errors of the given fields of d to p.
func (d *Data) validate(p *problems, given fields) {
	if given&fieldConversationID != 0 {
		p.text("data.conversation_id", d.ConversationID, MaxIDBytes)
	}
	if given&fieldUserIDs != 0 {
		p.users("data.user_ids", d.UserIDs)
	}
	if given&fieldSeq != 0 && d.Seq < 1 {
		p.add("data.seq", "must be at least 1, is %d", d.Seq)
	}
	if given&fieldUpToSeq != 0 && d.UpToSeq < 1 {
		p.add("data.up_to_seq", "must be at least 1, is %d", d.UpToSeq)
	}
	if given&fieldMentionedUserIDs != 0 {
		p.mentioned(d.MentionedUserIDs, d.UserIDs)
	}
	if given&fieldCategory != 0 {
		p.text("data.category", d.Category, MaxCategoryBytes)
	}
	if given&fieldMessageID != 0 {
		p.text("data.message_id", d.MessageID, MaxIDBytes)
	}
	if given&fieldSenderID != 0 {
		p.text("data.sender_id", d.SenderID, MaxIDBytes)
	}
	if given&fieldLevel != 0 {
		switch d.Level {
		case LevelAll, LevelMentions, LevelNone:
		default:
			p.add("data.level", `must be "all", "mentions" or "none", is %s`, quoteShort(string(d.Level)))
		}
	}
}

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

func (p *problems) mentioned(mentioned, users []string) {
	if len(mentioned) == 0 {
		return
	}
	if len(mentioned) > MaxUsers {
		p.add("data.mentioned_user_ids", "must name at most %d users, names %d", MaxUsers, len(mentioned))
		return
	}
	among := make(map[string]struct{}, len(users))
	for _, u := range users {
		among[u] = struct{}{}
	}
	for i, u := range mentioned {
		if _, ok := among[u]; !ok {
			p.add(fmt.Sprintf("data.mentioned_user_ids[%d]", i), "%s is not among data.user_ids", quoteShort(u))
		}
	}
}

func (p *problems) text(field, s string, maxBytes int) {
	if reason := checkText(s, maxBytes); reason != "" {
		p.add(field, "%s", reason)
	}
}

// CheckID returns why s cannot be the id of a user, conversation, message or sender,
// or "". An id is 1–128 bytes of UTF-8 without control characters.
func CheckID(s string) string { return checkText(s, MaxIDBytes) }

// CheckCategory returns why s cannot be a category, or "". A category is 1–64 bytes
// of UTF-8 without control characters.
func CheckCategory(s string) string { return checkText(s, MaxCategoryBytes) }

func checkText(s string, maxBytes int) string {
	switch {
	case s == "":
		return "must not be empty"
	case len(s) > maxBytes:
		return fmt.Sprintf("must have at most %d bytes, has %d", maxBytes, len(s))
	case isPlain(s): // as most are, and which is quick to see
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

// quoteShort quotes s for a message, cut if it is long.
func quoteShort(s string) string {
	const most = 64
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(cutText(s, most)) + "…"
}

// cutText returns at most the first n bytes of s, which has more, without
// cutting a character.
func cutText(s string, n int) string {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
