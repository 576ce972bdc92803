// Package describetest checks requests, answers and frames against the description of an interface.
//
// It does not know the code that made the descriptions.
package describetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is an OpenAPI or AsyncAPI document, against whose schemas values can be checked. The
// schemas of a Document refuse fields that they do not describe, so that tests detect missing
// descriptions. Document is safe for concurrent use, so that the tests of a package can share a
// document: parsing takes longer than most tests.
type Document struct {
	root map[string]any

	mu       sync.Mutex // guards compiler
	compiler *jsonschema.Compiler
}

// address is the URL by which the compiler refers to the document.
const address = "file:///document.json"

// Parse parses a document.
func Parse(document []byte) (*Document, error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("the document is not JSON: %w", err)
	}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the document is a %T, not an object", v)
	}
	closeObjects(root)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(address, root); err != nil {
		return nil, err
	}
	return &Document{root: root, compiler: compiler}, nil
}

// closeObjects makes all object schemas within a value refuse fields that they do not describe.
func closeObjects(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			closeObjects(item)
		}
	case map[string]any:
		if _, named := v["properties"].(map[string]any); named && v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, member := range v {
			closeObjects(member)
		}
	}
}

// Lookup returns the value at the JSON pointer with the given tokens, nil if there is none.
func (d *Document) Lookup(tokens ...string) any {
	var v any = d.root
	for _, token := range tokens {
		object, _ := v.(map[string]any)
		v = object[token]
	}
	return v
}

// Validate checks a JSON value against the schema at the JSON pointer with the given tokens.
func (d *Document) Validate(value []byte, tokens ...string) error {
	var pointer strings.Builder
	for _, token := range tokens {
		token = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(token)
		pointer.WriteString("/" + token)
	}
	d.mu.Lock()
	schema, err := d.compiler.Compile(address + "#" + pointer.String())
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("schema %s: %w", pointer.String(), err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return schema.Validate(v)
}

// CheckAnswer checks the answer to a request against the description of the route, which method and
// path identify.
func (d *Document) CheckAnswer(t testing.TB, method, path string, status int, header http.Header, body []byte) {
	t.Helper()
	route := fmt.Sprintf("%s %s: %d", method, path, status)
	at := []string{"paths", path, strings.ToLower(method), "responses", strconv.Itoa(status)}
	answer, ok := d.Lookup(at...).(map[string]any)
	if !ok {
		t.Errorf("%s is not described: %.200s", route, body)
		return
	}
	headers, _ := answer["headers"].(map[string]any)
	for name, h := range headers {
		if required, _ := h.(map[string]any)["required"].(bool); required && header.Get(name) == "" {
			t.Errorf("%s has no header %s, which is described", route, name)
		}
	}
	for _, name := range []string{"Badged-Position", "Retry-After", "WWW-Authenticate"} {
		if header.Get(name) != "" && headers[name] == nil {
			t.Errorf("%s has the header %s, which is not described", route, name)
		}
	}
	contents, _ := answer["content"].(map[string]any)
	if contents == nil {
		return
	}
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || contents[mediaType] == nil && contents["*/*"] == nil {
		t.Errorf("%s comes as %q, which is not described", route, header.Get("Content-Type"))
		return
	}
	if !strings.HasSuffix(mediaType, "json") {
		return
	}
	if err := d.Validate(body, append(at, "content", mediaType, "schema")...); err != nil {
		t.Errorf("%s is not as described: %v\n%.500s", route, err, body)
	}
}

// CheckExamples checks each example in the document against the schema for which it is given. It
// returns the number of examples.
func (d *Document) CheckExamples(t testing.TB) int {
	t.Helper()
	return d.checkExamples(t, nil, d.root)
}

func (d *Document) checkExamples(t testing.TB, path []string, v any) int {
	t.Helper()
	object, ok := v.(map[string]any)
	if !ok {
		return 0
	}
	n := 0
	check := func(schema string, example any) {
		b, err := json.Marshal(example)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Validate(b, append(path[:len(path):len(path)], schema)...); err != nil {
			t.Errorf("the example at %s is not as described: %v", strings.Join(path, " "), err)
		}
		n++
	}
	if example, ok := object["example"]; ok && object["schema"] != nil && object["in"] == nil {
		check("schema", example)
	}
	if examples, ok := object["examples"].([]any); ok && object["payload"] != nil {
		for _, e := range examples {
			check("payload", e.(map[string]any)["payload"])
		}
	}
	for name, member := range object {
		n += d.checkExamples(t, append(path[:len(path):len(path)], name), member)
	}
	return n
}
