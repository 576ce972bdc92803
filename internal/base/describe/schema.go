// Package describe describes the interfaces of badged. A description consists of routes with their
// handlers, and of JSON Schemas that are derived from Go types. The package makes OpenAPI and
// AsyncAPI documents from it.
//
// It does not know routes, events or frames: its callers pass them as values. ADR 29 has the
// reasons.
package describe

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schema is a JSON Schema of the dialect 2020-12, with the keywords that
// badged uses.
type Schema struct {
	Ref         string    `json:"$ref,omitempty"`
	Type        []string  `json:"-"` // one or more
	Description string    `json:"description,omitempty"`
	Format      string    `json:"format,omitempty"`
	Const       any       `json:"const,omitempty"`
	Enum        []string  `json:"enum,omitempty"`
	Minimum     *int64    `json:"minimum,omitempty"`
	Maximum     *int64    `json:"maximum,omitempty"`
	MinLength   *int64    `json:"minLength,omitempty"`
	MaxLength   *int64    `json:"maxLength,omitempty"`
	MinItems    *int64    `json:"minItems,omitempty"`
	MaxItems    *int64    `json:"maxItems,omitempty"`
	Items       *Schema   `json:"items,omitempty"`
	OneOf       []*Schema `json:"oneOf,omitempty"`
	// Discriminator names a property. Its value says which of the schemas in OneOf applies.
	Discriminator Object `json:"discriminator,omitempty"`
	// Properties maps names to *Schema.
	Properties Object   `json:"properties,omitempty"`
	Required   []string `json:"required,omitempty"`
	// AdditionalProperties says which further properties a value may have: false means no others, a
	// *Schema means properties that match this schema, and nil means any.
	AdditionalProperties any `json:"additionalProperties,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s *Schema) MarshalJSON() ([]byte, error) {
	type plain Schema
	var t any
	switch len(s.Type) {
	case 0:
	case 1:
		t = s.Type[0]
	default:
		t = s.Type
	}
	return json.Marshal(struct {
		Type any `json:"type,omitempty"`
		*plain
	}{t, (*plain)(s)})
}

// Object is a JSON object whose members have an order.
type Object []Member

// Member is a member of an Object.
type Member struct {
	Name  string
	Value any
}

// MarshalJSON implements json.Marshaler.
func (o Object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// TypeName returns a name in the style of generated code, such as MessageDelivered for
// message.delivered and ReadAll for read_all.
func TypeName(s string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '.' || r == '_' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// Named is the schema of a struct under another name. If Required or Optional is set, the schema
// has only the fields in these lists.
type Named struct {
	Name string
	Doc  string
	// Model is a value of the struct type.
	Model              any
	Required, Optional []string
	// Docs replaces the descriptions of fields.
	Docs map[string]string
	// Consts has the value of each field that has only one possible value.
	Consts map[string]string
	// Fields replaces the schemas of some fields, by values for Schemas.Of.
	Fields map[string]any
}

// OneOf describes a value that matches one of several schemas. Schemas.Of makes each schema from an
// element of Models.
type OneOf struct {
	// Name is the name of the schema, "" if it is used in one place only.
	Name, Doc string
	// By names the discriminator: a property with a different constant value in each schema. If By
	// is set, each element of Models must be a Named whose Consts has this value. "" means that
	// there is no discriminator.
	By     string
	Models []any
}

// List describes an array. Model describes its elements, by a value for Schemas.Of.
type List struct {
	Model              any
	MinItems, MaxItems int64
}

// Schemas makes schemas from Go values. It stores the schemas that have a name, so that other
// schemas can refer to them.
type Schemas struct {
	// prefix is the JSON pointer in a document under which the named schemas are.
	prefix string
	named  Object
	types  map[string]reflect.Type
}

// NewSchemas returns an empty set of schemas. prefix is the JSON pointer under which a document has
// the named schemas.
func NewSchemas(prefix string) *Schemas {
	return &Schemas{prefix: prefix, types: map[string]reflect.Type{}}
}

// Named returns the schemas that have a name, in the order of first use.
func (s *Schemas) Named() Object { return s.named }

// Lookup resolves a reference: it returns the schema to which the reference points, and the name of
// that schema. If schema is not a reference, Lookup returns schema and "".
func (s *Schemas) Lookup(schema *Schema) (*Schema, string) {
	name, ok := strings.CutPrefix(schema.Ref, s.prefix)
	if !ok {
		return schema, ""
	}
	return s.find(name), name
}

func (s *Schemas) find(name string) *Schema {
	for _, m := range s.named {
		if m.Name == name {
			return m.Value.(*Schema)
		}
	}
	return nil
}

// Of returns the schema of a value. A *Schema is returned as it is. Named, OneOf and List
// describe a schema. Any other value means the schema of its Go type. A struct type with a name
// becomes a named schema, and the result refers to it. The tags json, doc, minimum, maximum,
// minLength, maxLength, minItems, maxItems, enum (separated by commas), format and type describe
// the fields of a struct. Of panics if a type has no schema, or if two types would have the
// same name.
func (s *Schemas) Of(v any) *Schema {
	switch v := v.(type) {
	case *Schema:
		return v
	case Named:
		return s.ofNamed(v)
	case OneOf:
		return s.oneOf(v)
	case List:
		return &Schema{Type: []string{"array"}, Items: s.Of(v.Model), MinItems: &v.MinItems, MaxItems: &v.MaxItems}
	}
	return s.ofType(reflect.TypeOf(v))
}

// Closed is like Of, but the schema refuses properties that it does not describe.
func (s *Schemas) Closed(v any) *Schema {
	schema := s.Of(v)
	target, _ := s.Lookup(schema)
	s.close(target)
	return schema
}

func (s *Schemas) close(schema *Schema) {
	if schema.Properties != nil {
		schema.AdditionalProperties = false
	}
	for _, m := range schema.Properties {
		target, _ := s.Lookup(m.Value.(*Schema))
		s.close(target)
	}
	for _, inner := range append(schema.OneOf, schema.Items) {
		if inner != nil {
			target, _ := s.Lookup(inner)
			s.close(target)
		}
	}
}

func (s *Schemas) ofNamed(n Named) *Schema {
	t := reflect.TypeOf(n.Model)
	return s.refer(n.Name, t, func() *Schema {
		schema := s.ofStruct(t)
		schema.Description = n.Doc
		if n.Required != nil || n.Optional != nil {
			var picked Object
			for _, name := range slices.Concat(n.Required, n.Optional) {
				field := *property(schema, name)
				field.Description = cmp.Or(n.Docs[name], field.Description)
				picked = append(picked, Member{name, &field})
			}
			schema.Properties, schema.Required = picked, n.Required
		}
		for i, m := range schema.Properties {
			if c, ok := n.Consts[m.Name]; ok {
				schema.Properties[i].Value = &Schema{Const: c, Description: m.Value.(*Schema).Description}
			}
			if f, ok := n.Fields[m.Name]; ok {
				field := *s.Of(f)
				schema.Properties[i].Value = &field
				if field.Description == "" {
					field.Description = m.Value.(*Schema).Description
				}
			}
		}
		return schema
	})
}

func (s *Schemas) oneOf(o OneOf) *Schema {
	build := func() *Schema {
		schema := &Schema{Description: o.Doc}
		var mapping Object
		for _, model := range o.Models {
			one := s.Of(model)
			schema.OneOf = append(schema.OneOf, one)
			if o.By != "" {
				mapping = append(mapping, Member{model.(Named).Consts[o.By], one.Ref})
			}
		}
		if o.By != "" {
			schema.Discriminator = Object{{"propertyName", o.By}, {"mapping", mapping}}
		}
		return schema
	}
	if o.Name == "" {
		return build()
	}
	return s.refer(o.Name, reflect.TypeOf(o), build)
}

func property(schema *Schema, name string) *Schema {
	for _, m := range schema.Properties {
		if m.Name == name {
			return m.Value.(*Schema)
		}
	}
	panic("describe: there is no field " + name)
}

// refer returns a reference to the named schema. It calls build if the schema does not exist yet.
func (s *Schemas) refer(name string, t reflect.Type, build func() *Schema) *Schema {
	if known, ok := s.types[name]; !ok {
		s.types[name] = t
		at := len(s.named)
		s.named = append(s.named, Member{Name: name})
		s.named[at].Value = build()
	} else if known != t {
		panic(fmt.Sprintf("describe: both %s and %s would be %s", known, t, name))
	}
	return &Schema{Ref: s.prefix + name}
}

func (s *Schemas) ofType(t reflect.Type) *Schema {
	switch t {
	case reflect.TypeFor[time.Time]():
		return &Schema{Type: []string{"string"}, Format: "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return &Schema{}
	}
	switch t.Kind() {
	case reflect.Pointer: // absent if nil
		return s.ofType(t.Elem())
	case reflect.String:
		return &Schema{Type: []string{"string"}}
	case reflect.Bool:
		return &Schema{Type: []string{"boolean"}}
	case reflect.Int64:
		return &Schema{Type: []string{"integer"}, Format: "int64"}
	case reflect.Int, reflect.Int32:
		return &Schema{Type: []string{"integer"}}
	case reflect.Float64:
		return &Schema{Type: []string{"number"}}
	case reflect.Slice:
		return &Schema{Type: []string{"array"}, Items: s.ofType(t.Elem())}
	case reflect.Map:
		return &Schema{Type: []string{"object"}, AdditionalProperties: s.ofType(t.Elem())}
	case reflect.Struct:
		if t.Name() == "" {
			return s.ofStruct(t)
		}
		return s.refer(TypeName(t.Name()), t, func() *Schema { return s.ofStruct(t) })
	}
	panic(fmt.Sprintf("describe: %s has no schema", t))
}

func (s *Schemas) ofStruct(t reflect.Type) *Schema {
	schema := &Schema{Type: []string{"object"}}
	s.addFields(schema, t)
	return schema
}

func (s *Schemas) addFields(schema *Schema, t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.addFields(schema, f.Type)
			continue
		case name == "" || name == "-":
			continue
		}
		schema.Properties = append(schema.Properties, Member{name, s.ofField(f)})
		if !strings.Contains(options, "omit") {
			schema.Required = append(schema.Required, name)
		}
	}
}

// ofField returns the schema of a struct field, from its type and its tags.
func (s *Schemas) ofField(f reflect.StructField) *Schema {
	schema := s.ofType(f.Type)
	schema.Description = f.Tag.Get("doc")
	if types := f.Tag.Get("type"); types != "" {
		schema.Type = strings.Split(types, ",")
	}
	if format := f.Tag.Get("format"); format != "" {
		schema.Format = format
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		schema.Enum = strings.Split(enum, ",")
	}
	for tag, bound := range map[string]**int64{
		"minimum": &schema.Minimum, "maximum": &schema.Maximum,
		"minLength": &schema.MinLength, "maxLength": &schema.MaxLength,
		"minItems": &schema.MinItems, "maxItems": &schema.MaxItems,
	} {
		text := f.Tag.Get(tag)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("describe: %s of field %s is %q", tag, f.Name, text))
		}
		*bound = &n
	}
	if ids := schema.Items; ids != nil && slices.Contains(ids.Type, "string") {
		// In a field that is a list of strings, the tags for lengths apply to each string.
		ids.MinLength, ids.MaxLength, schema.MinLength, schema.MaxLength = schema.MinLength, schema.MaxLength, nil, nil
	}
	return schema
}
