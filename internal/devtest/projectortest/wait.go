package projectortest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/badged/badged/pubsub"
)

// patience is the timeout of every wait.
const patience = time.Minute

// Await receives a value from c. It fails the test if no value comes in time; what names the value.
func Await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// Until polls until a condition holds. Between two polls it pauses for a twentieth of the time
// waited so far, since fast polling would use the processor time that the condition needs.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); {
		waited := time.Since(start)
		if waited > patience {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(min(max(waited/20, time.Millisecond), 100*time.Millisecond))
	}
}

// Run runs a function until the test ends or stop is called. stop returns after the function has
// returned. If the function returns an error, the test fails.
func Run(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Count returns the value of a counter or gauge.
func Count(c prometheus.Collector) int { return int(testutil.ToFloat64(c)) }

// Bus is an in-process bus that stores what is published. It reports that every user has a
// subscriber.
type Bus struct {
	*pubsub.Memory
	// Published receives a value after a call of Publish.
	Published chan struct{}

	mu      sync.Mutex
	updates []pubsub.Update
}

func newBus(t testing.TB) *Bus {
	b := &Bus{Memory: pubsub.NewMemory(), Published: make(chan struct{}, 1)}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// Publish stores the updates of users, and ignores the updates of rooms.
func (b *Bus) Publish(_ context.Context, updates []pubsub.Update, _ []pubsub.RoomUpdate) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.updates = append(b.updates, updates...)
	select {
	case b.Published <- struct{}{}:
	default:
	}
	return nil
}

// HasSubscribers returns true.
func (*Bus) HasSubscribers(pubsub.Address) bool { return true }

// Of returns the updates of a user, in the order of publishing.
func (b *Bus) Of(user string) []pubsub.Update {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.updates), func(u pubsub.Update) bool { return u.UserID != user })
}

// AwaitTotal waits until the latest update of a user has the given total. Only one goroutine of a
// test may call it at a time.
func (b *Bus) AwaitTotal(t testing.TB, user string, total int64) {
	t.Helper()
	for {
		updates := b.Of(user)
		if n := len(updates); n > 0 && updates[n-1].Total == total {
			return
		}
		Await(t, b.Published, fmt.Sprintf("a total of %d for %s after %v", total, user, updates))
	}
}

// LogRecorder is a log handler whose messages a test can wait for.
type LogRecorder struct{ messages chan string }

// NewLogRecorder returns a recorder that can store 1,000 messages.
func NewLogRecorder() *LogRecorder { return &LogRecorder{messages: make(chan string, 1000)} }

// Logger returns a logger that writes to the recorder.
func (r *LogRecorder) Logger() *slog.Logger { return slog.New(r) }

// Enabled returns true.
func (*LogRecorder) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs returns the recorder without the attributes.
func (r *LogRecorder) WithAttrs([]slog.Attr) slog.Handler { return r }

// WithGroup returns the recorder without the group.
func (r *LogRecorder) WithGroup(string) slog.Handler { return r }

// Handle stores the message of a record.
func (r *LogRecorder) Handle(_ context.Context, record slog.Record) error {
	r.messages <- record.Message
	return nil
}

// Await waits until the given message is logged. It discards the messages before it.
func (r *LogRecorder) Await(t testing.TB, message string) {
	t.Helper()
	for Await(t, r.messages, message) != message {
	}
}
