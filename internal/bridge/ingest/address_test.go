package ingest_test

import (
	"strings"
	"testing"

	"github.com/badged/badged/internal/bridge/ingest"
)

// A bad URL is refused with what is wrong, and without its secrets.
func TestBadURLs(t *testing.T) {
	for url, want := range map[string]string{
		"":                                               "this is not the URL of a broker; want ",
		"localhost:6379":                                 "this is not the URL of a broker",
		"amqp://ada:hunter2@localhost/x":                 "there is no broker for amqp://",
		"ada:hunter2@redis://host/x":                     "this is not the URL of a broker",
		"redis://ada:hunter2@/0?stream=a":                "it needs HOST:PORT",
		"redis://ada:hun%ter2@h/0?stream=a":              "special characters as %XX",
		"redis://ada:hunter2@h:6379/0":                   "redis://ada:***@h:6379/0: the URL names no stream; want redis://USER:PASSWORD@HOST:6379/0?stream=STREAM",
		"redis://:hunter2@h:6379/x?stream=a":             "invalid database number",
		"redis://ada:hunter2@h:6379/0?stream=a&streem=b": "streem",
		"redis://ada:hunter2@h:6379/0?stream=a&stream=a": "a is named twice",
		"redis://ada:hunter2@h:6379/0?stream=a&name=" + strings.Repeat("n", 33): "the name must be 1 to 32 characters",
		"redis://ada:hunter2@h:6379/0?stream=a&name=a/b":                        "without spaces and slashes",
		"redis://ada:hunter2@h:port/0?stream=a":                                 "it needs HOST:PORT",
	} {
		_, errs := ingest.Parse([]string{url})
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) || !strings.Contains(errs[0].Error(), "--from, URL 1: ") {
			t.Errorf("%s: %v, want %q", url, errs, want)
		} else if strings.Contains(errs[0].Error(), "hun") {
			t.Errorf("%s: the error has the password: %v", url, errs[0])
		}
	}
}

// Positions are kept by name and stream, which therefore must differ.
func TestNamesTellBrokersApart(t *testing.T) {
	both := []string{"redis://one/0?stream=chat", "redis://two/0?stream=calls,chat"}
	if _, errs := ingest.Parse(both); len(errs) != 1 || !strings.Contains(errs[0].Error(), "chat is named twice; if another broker has") {
		t.Errorf("the same names: %v", errs)
	}
	both[1] += "&name=two"
	sources, errs := ingest.Parse(both)
	if len(errs) > 0 || sources[0].Name != "redis" || sources[1].Name != "two" || sources[1].Shown != "redis://two/0" {
		t.Errorf("%+v %v", sources, errs)
	}
}
