package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// checkFields returns an error if a field is repeated in its object, or if a field at the top level
// is an empty text or list. The error names the first such field, by a path without indexes of
// arrays.
//
// encoding/json uses the last of repeated fields, and ignores the case of names; so checkFields
// ignores the case too. An empty field would count as an absent field: if a backend sent an empty
// id by mistake, an action for one user would apply to all users. Fields below the top level may be
// empty, since badged does not define all of them, for example the fields in a push subscription.
func checkFields(text []byte) error {
	w := fieldWalk{d: jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	w.value("", 0)
	return w.wrong
}

// fieldWalk reads JSON up to the first repeated or empty field, and stores the error of this field
// in wrong. If it finds a syntax error first, wrong stays nil.
type fieldWalk struct {
	d     *jsontext.Decoder
	wrong error
}

// value reads a value at a path. depth is the nesting, 0 for the whole body. It reports whether
// to continue.
func (w *fieldWalk) value(path string, depth int) bool {
	token, err := w.d.ReadToken()
	if err != nil {
		return false
	}
	kind := token.Kind()
	if depth == 1 && (kind == jsontext.KindString && token.String() == "" || kind == jsontext.KindBeginArray && w.d.PeekKind() == jsontext.KindEndArray) {
		w.wrong = errors.New(path + " must not be empty: give a value, or leave it out")
		return false
	}
	switch kind {
	case jsontext.KindBeginObject:
		return w.object(path, depth)
	case jsontext.KindBeginArray:
		for w.d.PeekKind() != jsontext.KindEndArray {
			if !w.value(path, depth+1) {
				return false
			}
		}
		_, err = w.d.ReadToken()
	}
	return err == nil
}

// object reads the rest of an object, after the opening brace, and reports whether to continue.
func (w *fieldWalk) object(path string, depth int) bool {
	seen := map[string]struct{}{}
	for w.d.PeekKind() != jsontext.KindEndObject {
		token, err := w.d.ReadToken()
		if err != nil {
			return false
		}
		name := token.String()
		field := strings.TrimPrefix(path+"."+name, ".")
		name = strings.ToLower(strings.ToUpper(name)) // fold the case both ways: some letters have two upper-case or two lower-case forms
		if _, ok := seen[name]; ok {
			w.wrong = errors.New(field + " is given twice")
			return false
		}
		seen[name] = struct{}{}
		if !w.value(field, depth+1) {
			return false
		}
	}
	_, err := w.d.ReadToken()
	return err == nil
}

// seqsParam describes the parameter that selects how an answer writes seqs.
func seqsParam() describe.Param {
	return describe.Param{
		In: "query", Name: "seqs", Doc: "How the answer writes seqs: `number`, the default, or `string`, as strings of digits. JavaScript rounds numbers above 2^53, such as snowflakes, so use `string` for these.",
		Of: &describe.Schema{Type: []string{"string"}, Enum: []string{"number", "string"}}, Example: "string",
	}
}

// pageWithSeqs describes a page of conversations whose seqs are numbers or strings.
func pageWithSeqs() describe.Named {
	seqs := map[string]any{}
	for _, field := range []string{"first_unread_seq", "read_seq", "seen_seq", "last_seq"} {
		seqs[field] = &describe.Schema{Type: []string{"integer", "string"}, Format: "int64", Minimum: new(int64(0))}
	}
	conversation := describe.Named{Name: "Conversation", Of: pubsub.Conversation{}, Fields: seqs}
	return describe.Named{Name: "ConversationsPage", Of: conversationsPage{}, Fields: map[string]any{
		"conversations": describe.List{Of: conversation, MaxItems: badges.MaxPage},
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
