package httpapi

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// repeatedField returns the path of the first field that its object has already, ""
// if there is none. Encoding/json accepts it and takes the last. It decodes names that
// differ in case only into one field, so these are the same here. Elements of arrays
// are not part of paths.
func repeatedField(text []byte) (path string) {
	w := fieldWalk{d: jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	w.value("")
	return w.repeated
}

// fieldWalk reads JSON up to the first repeated field or mistake.
type fieldWalk struct {
	d        *jsontext.Decoder
	repeated string
}

// value reads a value with a path. It reports whether to go on.
func (w *fieldWalk) value(path string) bool {
	token, err := w.d.ReadToken()
	if err != nil {
		return false
	}
	switch token.Kind() {
	case jsontext.KindBeginObject:
		return w.object(path)
	case jsontext.KindBeginArray:
		for w.d.PeekKind() != jsontext.KindEndArray {
			if !w.value(path) {
				return false
			}
		}
		_, err = w.d.ReadToken()
	}
	return err == nil
}

// object reads the rest of an object.
func (w *fieldWalk) object(path string) bool {
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
			w.repeated = field
			return false
		}
		seen[name] = struct{}{}
		if !w.value(field) {
			return false
		}
	}
	_, err := w.d.ReadToken()
	return err == nil
}
