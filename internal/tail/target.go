package tail

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/badged/badged/internal/broker"
)

// Target is where a tail publishes, as --to names it.
type Target struct {
	// Name is the target's name in metrics and in the name of its consumer group: by
	// default the word for its scheme.
	Name string
	// Stream is the topic, stream or key.
	Stream string
	// Shown is the URL without secrets.
	Shown string
	// Events and Badges say what is published.
	Events, Badges bool
	// open returns what writes. It does not connect.
	open func() (writer, error)
}

// group returns the consumer group that has the positions of the target.
func (t *Target) group() string { return "badged tail " + t.Name + " " + t.Stream }

// writer writes to a broker. It is safe for concurrent use.
type writer interface {
	// check fails if the broker cannot be reached or has no such stream. Its error says
	// what to do.
	check(ctx context.Context) error
	// write writes records, those of one key in order. It returns nil once the broker has
	// acknowledged all. After an error some may be written.
	write(ctx context.Context, records []record) error
	close()
}

// record is what is written: a CloudEvent in structured mode.
type record struct {
	// key is the same for records whose order matters.
	key string
	// id is the same if the record is written again.
	id string
	// partition of the log, and place there; the latter only of events.
	partition, place string
	payload          []byte
	// about says what an event is about: two that share any of it have an order. Nil for
	// a badge, which its version orders.
	about []string
}

// schemes are the forms of the URLs, by scheme.
var schemes = map[string]struct {
	name, example string
	parse         func(broker.Address) (Target, error)
}{
	"kafka":  {"kafka", "kafka://USER:PASSWORD@HOST:9092/TOPIC", parseKafka},
	"nats":   {"nats", "nats://USER:PASSWORD@HOST:4222/STREAM?subject=SUBJECT", parseNATS},
	"redis":  {"redis", "redis://USER:PASSWORD@HOST:6379/0?stream=STREAM", parseRedis},
	"rediss": {"redis", "rediss://USER:PASSWORD@HOST:6379/0?stream=STREAM", parseRedis},
}

// Parse parses the URLs of targets. It returns an error for each bad one, without
// secrets.
func Parse(urls []string) (all []Target, errs []error) {
	groups := map[string]bool{}
	for i, text := range urls {
		t, err := parse(text)
		if err == nil && groups[t.group()] {
			err = fmt.Errorf("%s is named twice; if it is another broker, or gets something else, give one of the URLs a name: &name=NAME", t.Stream)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--to, URL %d: %w", i+1, err))
			continue
		}
		groups[t.group()] = true
		all = append(all, t)
	}
	return all, errs
}

// Limits of names: they are parts of the name of a consumer group.
const (
	maxName   = 32
	maxStream = 200
)

func parse(text string) (Target, error) {
	a, err := broker.ParseAddress(text, slices.Collect(maps.Keys(schemes)))
	if err != nil {
		return Target{}, err
	}
	form := schemes[a.Scheme]
	name, send := a.Take("name"), a.List("send")
	t, err := form.parse(a)
	if err == nil {
		err = a.Unknown()
	}
	if err == nil && len(t.Stream) > maxStream {
		err = fmt.Errorf("the name of the stream has more than %d bytes", maxStream)
	}
	if err == nil {
		err = t.setSend(send)
	}
	if err != nil {
		return Target{}, fmt.Errorf("%s: %w; want %s", a.Shown(), err, form.example)
	}
	t.Name, t.Shown = name, a.Shown()
	if name == "" {
		t.Name = form.name
	}
	if len(t.Name) > maxName || strings.ContainsFunc(t.Name, func(r rune) bool { return r <= ' ' || r == '/' || r > '~' }) {
		return Target{}, fmt.Errorf("%s: the name must be 1 to %d characters without spaces and slashes", a.Shown(), maxName)
	}
	return t, nil
}

// setSend sets what is published: both without a choice.
func (t *Target) setSend(send []string) error {
	t.Events, t.Badges = len(send) == 0, len(send) == 0
	for _, what := range send {
		switch what {
		case "events":
			t.Events = true
		case "badges":
			t.Badges = true
		default:
			return fmt.Errorf("send must be events, badges or both with a comma, is %q", what)
		}
	}
	return nil
}
