package ingest

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Source is a broker and what to read there, as --from names it.
type Source struct {
	// Name is the broker's name in the table of positions and in the ids of events: by
	// default the word for its scheme.
	Name string
	// Streams are the topics, streams or keys that are read.
	Streams []string
	// Shown is the URL without secrets.
	Shown string
	// open returns the broker. It does not connect.
	open func() (Broker, error)
}

// schemes are the forms of the URLs, by scheme.
var schemes = map[string]struct {
	name, example string
	parse         func(address) (Source, error)
}{
	"kafka":  {"kafka", "kafka://USER:PASSWORD@HOST:9092/TOPIC", parseKafka},
	"nats":   {"nats", "nats://USER:PASSWORD@HOST:4222/STREAM", parseNATS},
	"redis":  {"redis", "redis://USER:PASSWORD@HOST:6379/0?stream=STREAM", parseRedis},
	"rediss": {"redis", "rediss://USER:PASSWORD@HOST:6379/0?stream=STREAM", parseRedis},
}

// Parse parses URLs of brokers. It returns an error for each bad one, without secrets.
func Parse(urls []string) (all []Source, errs []error) {
	streams := map[string]bool{}
	for i, text := range urls {
		s, err := parse(text)
		for _, stream := range s.Streams {
			if key := s.Name + " " + stream; streams[key] {
				err = fmt.Errorf("%s is named twice; if another broker has a stream of that name too, give one of the URLs a name: &name=NAME", stream)
			} else {
				streams[key] = true
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--from, URL %d: %w", i+1, err))
			continue
		}
		all = append(all, s)
	}
	return all, errs
}

// maxName is the most bytes of a broker's name: it is a part of the ids of events.
const maxName = 32

func parse(text string) (Source, error) {
	a, err := parseAddress(text)
	if err != nil {
		return Source{}, err
	}
	form := schemes[a.scheme]
	name := a.take("name")
	s, err := form.parse(a)
	if err == nil {
		err = a.unknown()
	}
	if err != nil {
		return Source{}, fmt.Errorf("%s: %w; want %s", a.shown(), err, form.example)
	}
	s.Name, s.Shown = name, a.shown()
	if name == "" {
		s.Name = form.name
	}
	if len(s.Name) > maxName || strings.ContainsFunc(s.Name, func(r rune) bool { return r <= ' ' || r == '/' || r > '~' }) {
		return Source{}, fmt.Errorf("%s: the name must be 1 to %d characters without spaces and slashes", a.shown(), maxName)
	}
	return s, nil
}

// address is a URL that may have several hosts.
type address struct {
	scheme         string
	user, password string
	hasPassword    bool
	hosts          []string
	path           string
	query          url.Values
	text           string
}

// parseAddress parses a URL. Its errors quote nothing that may hold a secret.
func parseAddress(text string) (address, error) {
	known := strings.Join(slices.Sorted(maps.Keys(schemes)), "://, ") + "://"
	scheme, rest, ok := strings.Cut(text, "://")
	if _, is := schemes[scheme]; !ok || !is {
		if ok && len(scheme) < 16 && !strings.ContainsAny(scheme, ":@/ ") {
			return address{}, fmt.Errorf("there is no broker for %s://; want %s", scheme, known)
		}
		return address{}, fmt.Errorf("it is no URL of a broker; want %s", known)
	}
	a := address{scheme: scheme, text: text}
	authority, rest, _ := cutAny(rest, "/?#")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		// Parsed apart: with several hosts it is no URL of net/url.
		u, err := url.Parse("x://" + authority[:i] + "@host")
		if err != nil {
			return address{}, errors.New("its user and password cannot be read; write their special characters as %XX")
		}
		a.user = u.User.Username()
		a.password, a.hasPassword = u.User.Password()
		authority = authority[i+1:]
	}
	a.hosts = strings.Split(authority, ",")
	for _, host := range a.hosts {
		if u, err := url.Parse("x://" + host); err != nil || u.Hostname() == "" {
			return address{}, errors.New("it needs HOST:PORT behind ://, or several with commas")
		}
	}
	u, err := url.Parse(rest)
	if err == nil {
		a.path = strings.TrimPrefix(u.Path, "/")
		a.query, err = url.ParseQuery(u.RawQuery)
	}
	if err != nil {
		return address{}, errors.New("what follows its hosts cannot be read; write special characters as %XX")
	}
	return a, nil
}

// cutAny is like strings.Cut at the first of some characters, and keeps that.
func cutAny(text, characters string) (before, rest string, found bool) {
	if i := strings.IndexAny(text, characters); i >= 0 {
		return text[:i], text[i:], true
	}
	return text, "", false
}

// take removes a parameter that may be given once and returns its value.
func (a *address) take(parameter string) string {
	value := a.query.Get(parameter)
	if len(a.query[parameter]) == 1 {
		a.query.Del(parameter)
	}
	return value
}

// list removes a parameter and returns its values: it may be given several times, or
// with commas.
func (a *address) list(parameter string) []string {
	values := splitList(strings.Join(a.query[parameter], ","))
	a.query.Del(parameter)
	return values
}

func splitList(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}

// unknown returns an error if a parameter was not taken.
func (a *address) unknown() error {
	if len(a.query) == 0 {
		return nil
	}
	name := slices.Min(slices.Collect(maps.Keys(a.query)))
	if len(a.query[name]) > 1 {
		return fmt.Errorf("the parameter %q is given twice", name)
	}
	return fmt.Errorf("there is no parameter %q", name)
}

// shown returns the URL without secrets.
func (a *address) shown() string {
	user := ""
	switch {
	case a.hasPassword:
		user = url.PathEscape(a.user) + ":***@"
	case a.user != "":
		user = "***@" // a token of NATS
	}
	_, rest, _ := strings.Cut(a.text, "://")
	authority, _, _ := cutAny(rest, "/?#")
	return a.scheme + "://" + user + authority[strings.LastIndexByte(authority, '@')+1:] + "/" + a.path
}
