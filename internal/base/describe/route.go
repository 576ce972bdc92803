package describe

import "net/http"

// Route is one route of an HTTP API: its handler and its description. The mux and the description
// are made from the same list of routes, so that the description is complete.
type Route struct {
	// Method and Path form a pattern of http.ServeMux.
	Method, Path string
	Handler      http.Handler
	// EveryMethod is true if Handler answers all methods, such as OPTIONS requests of browsers.
	EveryMethod bool

	// Name is the operation's name in generated clients, such as getBadge.
	Name string
	// Group is the heading under which the documentation shows the route.
	Group string
	// Summary is one line without a full stop. Doc is a longer text in Markdown.
	Summary, Doc string
	// Access names the security schemes that grant access. A request must satisfy one of these
	// schemes. If Optional is in the list, a request need not satisfy any scheme. If the list is
	// empty, the route is public.
	Access []string
	Params []Param
	// Body lists the alternative media types of a request's body.
	Body    []Content
	Answers []Answer
}

// Optional, in Route.Access, permits access without a security scheme.
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
	// Model is the value for Schemas.Of. Default: a string.
	Model    any
	Required bool
	Example  string
}

// Content is a body in one media type.
type Content struct {
	MediaType string
	// Model is the value for Schemas.Of; nil if the body is not JSON.
	Model any
	// Doc describes a body that has no schema.
	Doc string
	// Loose is true if a request may have fields that are not described; they are ignored.
	Loose bool
	// Example is an example of the body.
	Example string
}

// Answer is a possible answer of a route.
type Answer struct {
	Status  int
	Doc     string
	Headers []Param
	Content *Content
}

// JSON returns the content of a body in JSON.
func JSON(model any, example string) *Content {
	return &Content{MediaType: "application/json", Model: model, Example: example}
}

// ProblemType is the field "type" of every problem with which badged answers. By this type, a
// client knows that badged, and not a proxy, has refused the request.
const ProblemType = "urn:badged:problem"

// Problem returns the answer to a failed request. Its body is an RFC 9457 problem; model is a
// struct with the fields of the body.
func Problem(status int, model any, doc, example string) Answer {
	return Answer{
		Status: status, Doc: doc,
		Content: &Content{MediaType: "application/problem+json", Model: model, Example: example},
	}
}
