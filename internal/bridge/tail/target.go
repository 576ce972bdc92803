package tail

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/badged/badged/internal/bridge/broker"
)

// Target is a destination of a tail, as given with --to.
type Target struct {
	// Name is the target's name in metrics and in its consumer group. The default depends on the
	// scheme of the URL; it is, for example, kafka.
	Name string
	// Stream is the topic, stream or key.
	Stream string
	// Shown is the URL without secrets, for messages.
	Shown string
	// Events and Badges select what is published.
	Events, Badges bool
	// open returns the writer. It does not connect.
	open func() (writer, error)
}

// group returns the consumer group that stores the positions of the target.
func (t *Target) group() string { return "badged tail " + t.Name + " " + t.Stream }

// writer writes to a broker. It is safe for concurrent use.
type writer interface {
	// check returns an error if the broker cannot be reached, or if the topic, JetStream stream or
	// subject is missing. The error says what to do.
	check(ctx context.Context) error
	// write writes records; records with the same key are written in order. It returns nil once the
	// broker has acknowledged all records. If write fails, some of the records may have been
	// written.
	write(ctx context.Context, records []record) error
	close()
}

// record is a CloudEvent in structured mode.
type record struct {
	// key determines the order: records with the same key are written in order.
	key string
	// id identifies the record. A record that is written again has the same id.
	id string
	// partition is the partition of the log. place is the place of an event in this partition, ""
	// if the record is not an event.
	partition, place string
	payload          []byte
	// about has names of the users and the conversation of an event. Two events that have a name in
	// common must be written in order. about is nil for a badge, because a reader can order badges
	// by their versions.
	about []string
}

// schemes has, by the scheme of the URL, the default name of the target, an example URL and the
// parser.
var schemes = map[string]struct {
	name, example string
	parse         func(broker.Address) (Target, error)
}{
	"kafka":  {"kafka", "kafka://USER:PASSWORD@HOST:9092/TOPIC", parseKafka},
	"nats":   {"nats", "nats://USER:PASSWORD@HOST:4222/STREAM?subject=SUBJECT", parseNATS},
	"redis":  {"redis", "redis://USER:PASSWORD@HOST:6379/0?stream=STREAM", parseRedis},
	"rediss": {"redis", "rediss://USER:PASSWORD@HOST:6379/0?stream=STREAM", parseRedis},
}

// Parse parses the URLs of targets. It returns an error for each invalid URL; the errors quote no
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

// Limits of the lengths, in bytes, of the target's name and the stream's name. The name of the
// consumer group contains both names.
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

// setSend sets what is published. The default is both events and badges.
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
