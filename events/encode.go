package events

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// MarshalJSON returns the CloudEvents JSON form of e, which Decode reads.
func (e Event) MarshalJSON() ([]byte, error) {
	return appendEvent(nil, &e, &e.Data)
}

// appendEvent appends e to dst, with `data` instead of e.Data. It fails only if a string is not
// valid UTF-8.
func appendEvent(dst []byte, e *Event, data *Data) ([]byte, error) {
	a := appender{b: append(dst, `{"specversion":"1.0"`...)}
	a.text("id", e.ID)
	a.text("source", e.Source)
	a.text("type", string(e.Type))
	if !e.Time.IsZero() {
		a.name("time")
		a.time(e.Time)
	}
	if e.TraceParent != "" {
		a.text("traceparent", e.TraceParent)
	}
	if e.TraceState != "" {
		a.text("tracestate", e.TraceState)
	}
	if e.PublishedBy != "" {
		a.text(publishedBy, e.PublishedBy)
	}
	a.name("data")
	a.b = append(a.b, '{')

	present := data.present()
	for i, value := range data.values() {
		if !present.has(i) {
			continue
		}
		a.name(dataFields[i].name)
		switch v := value.(type) {
		case *string:
			a.quote(*v)
		case *Level:
			a.quote(string(*v))
		case *[]string:
			a.texts(*v)
		case *[]int64:
			a.numbers(*v)
		case *int64:
			a.b = strconv.AppendInt(a.b, *v, 10)
		case *bool:
			a.b = append(a.b, "true"...)
		case *time.Time:
			a.time(*v)
		case *Notification:
			a.notification(v)
		}
	}
	a.b = append(a.b, '}', '}')
	return a.b, a.err
}

// appender appends the members of JSON objects and stores the first error.
type appender struct {
	b   []byte
	err error
}

func (a *appender) name(name string) {
	if a.b[len(a.b)-1] != '{' {
		a.b = append(a.b, ',')
	}
	a.b = append(a.b, '"')
	a.b = append(a.b, name...)
	a.b = append(a.b, '"', ':')
}

func (a *appender) text(name, s string) {
	a.name(name)
	a.quote(s)
}

func (a *appender) time(t time.Time) {
	a.b = append(a.b, '"')
	a.b = t.UTC().AppendFormat(a.b, time.RFC3339Nano)
	a.b = append(a.b, '"')
}

func (a *appender) texts(texts []string) {
	a.b = append(a.b, '[')
	for i, s := range texts {
		if i > 0 {
			a.b = append(a.b, ',')
		}
		a.quote(s)
	}
	a.b = append(a.b, ']')
}

func (a *appender) numbers(numbers []int64) {
	a.b = append(a.b, '[')
	for i, n := range numbers {
		if i > 0 {
			a.b = append(a.b, ',')
		}
		a.b = strconv.AppendInt(a.b, n, 10)
	}
	a.b = append(a.b, ']')
}

func (a *appender) notification(n *Notification) {
	a.b = append(a.b, '{')
	if n.Title != "" {
		a.text("title", n.Title)
	}
	if n.Body != "" {
		a.text("body", n.Body)
	}
	if len(n.Data) > 0 {
		a.name("data")
		a.b = append(a.b, '{')
		for i, key := range slices.Sorted(maps.Keys(n.Data)) {
			if i > 0 {
				a.b = append(a.b, ',')
			}
			a.quote(key)
			a.b = append(a.b, ':')
			a.quote(n.Data[key])
		}
		a.b = append(a.b, '}')
	}
	a.b = append(a.b, '}')
}

func (a *appender) quote(s string) {
	b, err := jsontext.AppendQuote(a.b, s)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.b = b
}
