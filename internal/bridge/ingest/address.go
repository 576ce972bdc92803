package ingest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/badged/badged/internal/bridge/broker"
)

// Source is a broker and the streams to read from it, as given with --from.
type Source struct {
	// Name is the broker's name in the table of positions and in the ids of events. The default
	// depends on the scheme of the URL; it is, for example, kafka.
	Name string
	// Streams has the topics, streams or keys to read.
	Streams []string
	// Shown is the URL without secrets, for messages.
	Shown string
	// open returns the broker. It does not connect.
	open func() (Broker, error)
}

// schemes has, by the scheme of the URL, the default name of the broker, an example URL and the
// parser.
var schemes = map[string]struct {
	name, example string
	parse         func(broker.Address) (Source, error)
}{
	"kafka":  {"kafka", "kafka://USER:PASSWORD@HOST:9092/TOPIC", parseKafka},
	"nats":   {"nats", "nats://USER:PASSWORD@HOST:4222/STREAM", parseNATS},
	"redis":  {"redis", "redis://USER:PASSWORD@HOST:6379/0?stream=STREAM", parseRedis},
	"rediss": {"redis", "rediss://USER:PASSWORD@HOST:6379/0?stream=STREAM", parseRedis},
}

// Parse parses URLs of brokers. It returns an error for each invalid URL; the errors quote no
// secrets.
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

// maxName is the maximum length of a broker's name in bytes. There is a maximum because event ids
// contain the name.
const maxName = 32

func parse(text string) (Source, error) {
	a, err := broker.ParseAddress(text, slices.Collect(maps.Keys(schemes)))
	if err != nil {
		return Source{}, err
	}
	form := schemes[a.Scheme]
	name := a.Take("name")
	s, err := form.parse(a)
	if err == nil {
		err = a.Unknown()
	}
	if err != nil {
		return Source{}, fmt.Errorf("%s: %w; want %s", a.Shown(), err, form.example)
	}
	s.Name, s.Shown = name, a.Shown()
	if name == "" {
		s.Name = form.name
	}
	if len(s.Name) > maxName || strings.ContainsFunc(s.Name, func(r rune) bool { return r <= ' ' || r == '/' || r > '~' }) {
		return Source{}, fmt.Errorf("%s: the name must be 1 to %d characters without spaces and slashes", a.Shown(), maxName)
	}
	return s, nil
}
