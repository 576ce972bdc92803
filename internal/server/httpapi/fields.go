package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// decodeStrict decodes a JSON object into v. It fails if a text is not valid Unicode, if a field is
// unknown or given twice, or if a field is an empty text or list. It compares the names of fields
// exactly. A field that is null counts as absent. Its errors are safe to show.
//
// encoding/json would replace invalid Unicode by U+FFFD, ignore the case of names, and use the last
// of repeated fields: then an action for one user could apply to another. An empty field would count
// as an absent field: if a backend sent an empty id by mistake, an action for one user would apply
// to all users. Fields inside other fields may be empty, since badged does not define all of them,
// for example the fields in a push subscription.
func decodeStrict(b []byte, v any) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return errors.New("the body is empty")
	}
	var fields map[string]jsontext.Value
	err := jsonv2.Unmarshal(b, v, jsonv2.RejectUnknownMembers(true), jsonv1.MergeWithLegacySemantics(true)) // so null leaves the default of a field
	if err == nil {
		err = jsonv2.Unmarshal(b, &fields)
	}
	switch {
	case err != nil:
		return fieldError(err)
	case fields == nil:
		return errors.New("the body must be a JSON object, is a JSON null")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if isEmpty(fields[name]) {
			return errors.New(name + " must not be empty: give a value, or leave it out")
		}
	}
	return nil
}

// isEmpty reports whether a value is an empty text or list.
func isEmpty(v jsontext.Value) bool {
	return string(v) == `""` || v.Kind() == jsontext.KindBeginArray && len(bytes.TrimSpace(v[1:len(v)-1])) == 0
}

// fieldError converts an error of decoding a body to an error for the client. The new error names
// the field, and if the body is not valid JSON, the byte at which the mistake is.
func fieldError(err error) error {
	const broken = "the body is not valid JSON: "
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		field := fieldOf(syntax.JSONPointer)
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			return errors.New(field + " is given twice")
		case errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New(broken + "it ends too early")
		case field != "":
			return fmt.Errorf("%s%w at byte %d, in %s", broken, syntax.Err, syntax.ByteOffset, field)
		}
		return fmt.Errorf("%s%w at byte %d", broken, syntax.Err, syntax.ByteOffset)
	}
	typ, ok := errors.AsType[*jsonv2.SemanticError](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, jsonv2.ErrUnknownName):
		return fmt.Errorf("unknown field %.40q", typ.JSONPointer.LastToken())
	case typ.JSONPointer == "":
		return errors.New("the body must be a JSON object, is a JSON " + kinds[typ.JSONKind])
	}
	wrong := fieldOf(typ.JSONPointer) + " must not be a JSON " + kinds[typ.JSONKind]
	if typ.JSONKind == jsontext.KindNumber && typ.JSONValue != nil { // a number of the wrong size, or with a fraction
		wrong += fmt.Sprintf(" %.40s", typ.JSONValue)
	}
	return errors.New(wrong)
}

// fieldOf returns the path of a field, such as user_ids[3].
func fieldOf(pointer jsontext.Pointer) string {
	var path strings.Builder
	for token := range pointer.Tokens() {
		switch _, err := strconv.Atoi(token); {
		case err == nil:
			path.WriteString("[" + token + "]")
		case path.Len() > 0:
			path.WriteString("." + token)
		default:
			path.WriteString(token)
		}
	}
	return path.String()
}

// kinds are the names of JSON values in errors.
var kinds = map[jsontext.Kind]string{
	jsontext.KindNull: "null", jsontext.KindFalse: "bool", jsontext.KindTrue: "bool", jsontext.KindString: "string",
	jsontext.KindNumber: "number", jsontext.KindBeginObject: "object", jsontext.KindBeginArray: "array",
}

// seqsParam describes the parameter that selects how an answer writes seqs.
func seqsParam() describe.Param {
	return describe.Param{
		In: "query", Name: "seqs", Doc: "How the answer writes seqs: `number`, the default, or `string`, as strings of digits. JavaScript rounds numbers above 2^53, such as snowflakes, so use `string` for these.",
		Model: &describe.Schema{Type: []string{"string"}, Enum: []string{"number", "string"}}, Example: "string",
	}
}

// pageWithSeqs describes a page of conversations whose seqs are numbers or strings.
func pageWithSeqs() describe.Named {
	seqs := map[string]any{}
	for _, field := range []string{"first_unread_seq", "read_seq", "seen_seq", "last_seq"} {
		seqs[field] = &describe.Schema{Type: []string{"integer", "string"}, Format: "int64", Minimum: new(int64(0))}
	}
	conversation := describe.Named{Name: "Conversation", Model: pubsub.Conversation{}, Fields: seqs}
	return describe.Named{Name: "ConversationsPage", Model: conversationsPage{}, Fields: map[string]any{
		"conversations": describe.List{Model: conversation, MaxItems: badges.MaxPage},
	}}
}

// withSeqs encodes body as JSON. If the query has seqs=string, it writes each seq as a string.
func withSeqs(q url.Values, body any) (json.RawMessage, error) {
	as := q.Get("seqs")
	if as != "" && as != "number" && as != "string" {
		return nil, &problem{Status: http.StatusBadRequest, Detail: "seqs must be number or string"}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	if as == "string" {
		return quoteSeqs(text)
	}
	return text, nil
}

// quoteSeqs writes the numbers in fields named seq, or ending in _seq, as strings.
func quoteSeqs(text []byte) (json.RawMessage, error) {
	var quoted bytes.Buffer
	from, to := jsontext.NewDecoder(bytes.NewReader(text)), jsontext.NewEncoder(&quoted)
	for {
		token, err := from.ReadToken()
		if errors.Is(err, io.EOF) {
			return quoted.Bytes(), nil
		}
		if err == nil {
			field := from.StackPointer().LastToken()
			if token.Kind() == jsontext.KindNumber && (field == "seq" || strings.HasSuffix(field, "_seq")) {
				token = jsontext.String(token.String())
			}
			err = to.WriteToken(token)
		}
		if err != nil {
			return nil, fmt.Errorf("quote the seqs of an answer: %w", err)
		}
	}
}
