package ingest

import (
	"fmt"

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

// forms has the [broker.Form] of each scheme.
var forms = map[string]broker.Form[Source]{
	"kafka":  {Name: "kafka", Example: "kafka://USER:PASSWORD@HOST:9092/TOPIC", Parse: parseKafka},
	"nats":   {Name: "nats", Example: "nats://USER:PASSWORD@HOST:4222/STREAM", Parse: parseNATS},
	"redis":  {Name: "redis", Example: "redis://USER:PASSWORD@HOST:6379/0?stream=STREAM", Parse: parseRedis},
	"rediss": {Name: "redis", Example: "rediss://USER:PASSWORD@HOST:6379/0?stream=STREAM", Parse: parseRedis},
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

func parse(text string) (Source, error) {
	s, name, shown, err := broker.Parse(text, forms)
	s.Name, s.Shown = name, shown
	return s, err
}
