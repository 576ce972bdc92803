package describe

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// API is an HTTP API.
type API struct {
	Title, Version string
	// Doc is an introduction in Markdown.
	Doc    string
	Groups []Group
	// Access has the security schemes that routes refer to.
	Access []Access
	Routes []Route
}

// Group is a heading for routes.
type Group struct{ Name, Doc string }

// Access is a security scheme: a secret in the header "Authorization: Bearer".
type Access struct {
	Name, Doc string
	// Format is the secret's format, such as JWT; "" for an opaque string.
	Format string
}

// componentSchemas is the JSON pointer of the named schemas in OpenAPI and AsyncAPI documents.
const componentSchemas = "#/components/schemas/"

// OpenAPI returns the description of an API in OpenAPI 3.1, as JSON.
func OpenAPI(api API) ([]byte, error) {
	schemas := NewSchemas(componentSchemas)
	var paths Object
	for i := range api.Routes {
		r := &api.Routes[i]
		operation := Member{strings.ToLower(r.Method), operationOf(schemas, r)}
		at := slices.IndexFunc(paths, func(m Member) bool { return m.Name == r.Path })
		if at < 0 {
			at = len(paths)
			paths = append(paths, Member{r.Path, Object(nil)})
		}
		paths[at].Value = append(paths[at].Value.(Object), operation)
	}
	tags := make([]Object, len(api.Groups))
	for i, g := range api.Groups {
		tags[i] = Object{{"name", g.Name}, {"description", g.Doc}}
	}
	return json.MarshalIndent(Object{
		{"openapi", "3.1.0"},
		{"info", Object{
			{"title", api.Title},
			{"version", api.Version},
			{"description", api.Doc},
			{"license", Object{{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}},
		}},
		{"servers", []Object{{{"url", "/"}, {"description", "the server that this was read from"}}}},
		{"tags", tags},
		{"paths", paths},
		{"components", Object{
			{"schemas", schemas.Named()},
			{"securitySchemes", accessOf(api.Access)},
		}},
	}, "", "  ")
}

func accessOf(all []Access) Object {
	var schemes Object
	for _, a := range all {
		scheme := Object{{"type", "http"}, {"scheme", "bearer"}, {"description", a.Doc}}
		if a.Format != "" {
			scheme = append(scheme, Member{"bearerFormat", a.Format})
		}
		schemes = append(schemes, Member{a.Name, scheme})
	}
	return schemes
}

func operationOf(schemas *Schemas, r *Route) Object {
	o := Object{
		{"operationId", r.Name},
		{"tags", []string{r.Group}},
		{"summary", r.Summary},
	}
	if r.Doc != "" {
		o = append(o, Member{"description", r.Doc})
	}
	access := []Object{}
	for _, name := range r.Access {
		if name == Optional {
			access = append(access, Object{})
			continue
		}
		access = append(access, Object{{name, []string{}}})
	}
	o = append(o, Member{"security", access})
	if len(r.Params) > 0 {
		params := make([]Object, len(r.Params))
		for i, p := range r.Params {
			params[i] = append(Object{{"name", p.Name}, {"in", p.In}}, paramOf(schemas, p)...)
		}
		o = append(o, Member{"parameters", params})
	}
	if len(r.Body) > 0 {
		var contents Object
		for _, c := range r.Body {
			schemaOf := schemas.Closed
			if c.Loose {
				schemaOf = schemas.Of
			}
			contents = append(contents, contentOf(schemaOf, c))
		}
		o = append(o, Member{"requestBody", Object{{"required", true}, {"content", contents}}})
	}
	var answers Object
	for _, a := range r.Answers {
		answer := Object{{"description", a.Doc}}
		if len(a.Headers) > 0 {
			var headers Object
			for _, h := range a.Headers {
				headers = append(headers, Member{h.Name, paramOf(schemas, h)})
			}
			answer = append(answer, Member{"headers", headers})
		}
		if a.Content != nil {
			answer = append(answer, Member{"content", Object{contentOf(schemas.Of, *a.Content)}})
		}
		answers = append(answers, Member{strconv.Itoa(a.Status), answer})
	}
	return append(o, Member{"responses", answers})
}

// paramOf returns the OpenAPI object of a parameter or header, with the members that parameters and
// headers have in common.
func paramOf(schemas *Schemas, p Param) Object {
	model := p.Model
	if model == nil {
		model = ""
	}
	o := Object{{"description", p.Doc}}
	if p.Required || p.In == "path" {
		o = append(o, Member{"required", true})
	}
	o = append(o, Member{"schema", schemas.Of(model)})
	if p.Example != "" {
		o = append(o, Member{"example", p.Example})
	}
	return o
}

func contentOf(schemaOf func(any) *Schema, c Content) Member {
	var o Object
	schema := &Schema{Type: []string{"string"}}
	if c.Model != nil {
		schema = schemaOf(c.Model)
	}
	o = append(o, Member{"schema", schema})
	switch {
	case c.Example == "":
	case json.Valid([]byte(c.Example)):
		o = append(o, Member{"example", json.RawMessage(c.Example)})
	default: // JSON lines, or other text
		o = append(o, Member{"example", c.Example})
	}
	return Member{c.MediaType, o}
}
