package tail

import (
	"context"
	"fmt"

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
	// write writes records; records with the same key are written in order. It returns nil after
	// the broker has acknowledged all records. If write fails, some of the records may have been
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

// forms has the [broker.Form] of each scheme.
var forms = map[string]broker.Form[Target]{
	"kafka":  {Name: "kafka", Example: "kafka://USER:PASSWORD@HOST:9092/TOPIC", Parse: sending(parseKafka)},
	"nats":   {Name: "nats", Example: "nats://USER:PASSWORD@HOST:4222/STREAM?subject=SUBJECT", Parse: sending(parseNATS)},
	"redis":  {Name: "redis", Example: "redis://USER:PASSWORD@HOST:6379/0?stream=STREAM", Parse: sending(parseRedis)},
	"rediss": {Name: "redis", Example: "rediss://USER:PASSWORD@HOST:6379/0?stream=STREAM", Parse: sending(parseRedis)},
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

// maxStream is the maximum length of a stream's name in bytes. There is a maximum because the name
// of the consumer group contains it.
const maxStream = 200

func parse(text string) (Target, error) {
	t, name, shown, err := broker.Parse(text, forms)
	t.Name, t.Shown = name, shown
	return t, err
}

// sending adds two steps to the function `parse`: it reads the parameter `send`, and checks the
// length of the stream's name.
func sending(parse func(broker.Address) (Target, error)) func(broker.Address) (Target, error) {
	return func(a broker.Address) (Target, error) {
		send := a.List("send")
		t, err := parse(a)
		if err == nil && len(t.Stream) > maxStream {
			err = fmt.Errorf("the name of the stream has more than %d bytes", maxStream)
		}
		if err == nil {
			err = t.setSend(send)
		}
		return t, err
	}
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
