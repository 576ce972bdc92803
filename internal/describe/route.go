package describe

import "net/http"

// Route is one route of an HTTP API: what serves it, and what is told about it.
// Muxes and descriptions are made of the same tables of routes, so that neither
// has one that the other lacks.
type Route struct {
	// Method and Path are those of a pattern of http.ServeMux.
	Method, Path string
	Handler      http.Handler
	// EveryMethod is set where Handler itself answers requests with other
	// methods, such as the OPTIONS of browsers.
	EveryMethod bool

	// Name is what generated clients call it, such as getBadge.
	Name string
	// Group is the heading under which it is shown.
	Group string
	// Summary is a line without a full stop; Doc says more, in Markdown.
	Summary, Doc string
	// Access names the security schemes of which one is needed, Optional among
	// them where it may be left out; none where everybody may.
	Access []string
	Params []Param
	// Body is what a request may carry: one of these.
	Body    []Content
	Answers []Answer
}

// Optional is access without a security scheme.
const Optional = ""

// Pattern returns the pattern of the route for http.ServeMux.
func (r *Route) Pattern() string {
	if r.EveryMethod {
		return r.Path
	}
	return r.Method + " " + r.Path
}

// Param is a parameter of a request, or a header of an answer.
type Param struct {
	// In is "path", "query" or "header".
	In, Name, Doc string
	// Of is what its schema is made of, as for Schemas.Of; text by default.
	Of       any
	Required bool
	Example  string
}

// Content is a body in one media type.
type Content struct {
	MediaType string
	// Of is what its schema is made of, as for Schemas.Of; nil for bytes that are
	// not JSON.
	Of any
	// Doc says what the bytes are, where they have no schema.
	Doc string
	// Loose is set where a request may have other fields, which are ignored.
	Loose bool
	// Example is a body, as it goes over the wire.
	Example string
}

// Answer is what a route may answer with a status.
type Answer struct {
	Status  int
	Doc     string
	Headers []Param
	Content *Content
}

// JSON returns the content of a body in JSON.
func JSON(of any, example string) *Content {
	return &Content{MediaType: "application/json", Of: of, Example: example}
}

// Problem returns the answer to a request that fails: a body of RFC 9457 that is
// made of the struct of.
func Problem(status int, of any, doc, example string) Answer {
	return Answer{
		Status: status, Doc: doc,
		Content: &Content{MediaType: "application/problem+json", Of: of, Example: example},
	}
}
