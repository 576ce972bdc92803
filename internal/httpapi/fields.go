package httpapi

import (
	"bytes"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// checkFields returns an error for the first field that its object has already, or that is
// an empty text or list. Its path is without the elements of arrays.
//
// Encoding/json takes the last of repeated fields. It decodes names that differ in case
// only into one field, so these are the same here. An empty field would mean the same as
// no field: what was to be done for one user, whose id a backend has lost, would be done for
// all. What is inside of a field may be empty: the keys of a subscription are not ours.
func checkFields(text []byte) error {
	w := fieldWalk{d: jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	w.value("", 0)
	return w.wrong
}

// fieldWalk reads JSON up to the first mistake. wrong is nil if that is one of syntax.
type fieldWalk struct {
	d     *jsontext.Decoder
	wrong error
}

// value reads a value with a path, nested as deep as depth. It reports whether to go on.
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

// object reads the rest of an object.
func (w *fieldWalk) object(path string, depth int) bool {
	seen := map[string]struct{}{}
	for w.d.PeekKind() != jsontext.KindEndObject {
		token, err := w.d.ReadToken()
		if err != nil {
			return false
		}
		name := token.String()
		field := strings.TrimPrefix(path+"."+name, ".")
		name = strings.ToLower(strings.ToUpper(name)) // both: some letters have two forms of one case
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
