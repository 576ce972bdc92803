package obs

import (
	"context"
	"log/slog"
	"regexp"
	"sync"
	"time"
)

const (
	// repeatInterval is the time between two lines about an error that repeats.
	repeatInterval = time.Minute
	// repeatQuiet is how long an error must stay away to count as over: longer
	// than pauses between retries.
	repeatQuiet = 30 * time.Second
	// maxRepeats bounds the errors remembered; all others are logged.
	maxRepeats = 1000
)

// repeats is a slog.Handler that keeps repeated errors from filling the log:
// the first is logged, then one a minute with the number left out
// (repeated=N), and a last line when the error has stayed away for 30 s.
//
// Errors are warnings and errors with the attribute "error". Two are equal if
// place, level, message and the text of the error are, apart from numbers in
// the text: partitions, positions, ports and the like. Postgres error codes do
// not count as numbers. A record with the attribute "id" concerns one object
// and is always logged.
type repeats struct {
	next  slog.Handler
	state *repeatState
}

// repeatState is shared by all handlers of a logger.
type repeatState struct {
	mu   sync.Mutex
	seen map[repeatKey]*repeated
}

// repeatKey identifies equal errors.
type repeatKey struct {
	place          uintptr
	level          slog.Level
	message, error string
}

// repeated is an error that was logged, and may repeat.
type repeated struct {
	handler slog.Handler
	text    string // of the latest error
	logged  time.Time
	times   int // in all
	left    int // out since the last line
	quiet   *time.Timer
}

func newRepeats(next slog.Handler) *repeats {
	return &repeats{next: next, state: &repeatState{seen: map[repeatKey]*repeated{}}}
}

// Enabled implements slog.Handler.
func (h *repeats) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeats{next: h.next.WithAttrs(attrs), state: h.state}
}

// WithGroup implements slog.Handler.
func (h *repeats) WithGroup(name string) slog.Handler {
	return &repeats{next: h.next.WithGroup(name), state: h.state}
}

// Handle implements slog.Handler.
func (h *repeats) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		text, ok := errorOf(r)
		if ok {
			left, log := h.state.note(repeatKey{r.PC, r.Level, r.Message, withoutNumbers(text)}, text, h.next) //nolint:contextcheck // what is logged once it is over has no caller
			if !log {
				return nil
			}
			if left > 0 {
				r = r.Clone()
				r.AddAttrs(slog.Int("repeated", left))
			}
		}
	}
	return h.next.Handle(ctx, r)
}

// errorOf returns the text of a record's error; ok is false if it has none, or
// one that is always logged.
func errorOf(r slog.Record) (text string, ok bool) {
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "error":
			text, ok = a.Value.String(), true
		case "id":
			ok = false
			return false
		}
		return true
	})
	return text, ok
}

var numbers = regexp.MustCompile(`SQLSTATE \w+|\d+`)

// withoutNumbers replaces each number in text by #, except Postgres error
// codes.
func withoutNumbers(text string) string {
	return numbers.ReplaceAllStringFunc(text, func(n string) string {
		if n[0] == 'S' {
			return n
		}
		return "#"
	})
}

// note counts an error. It reports whether to log it, and how many equal ones
// were left out before.
func (s *repeatState) note(key repeatKey, text string, handler slog.Handler) (left int, log bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	e := s.seen[key]
	if e == nil {
		if len(s.seen) >= maxRepeats {
			return 0, true
		}
		e = &repeated{handler: handler, text: text, logged: now, times: 1}
		e.quiet = time.AfterFunc(repeatQuiet, func() { s.over(key) })
		s.seen[key] = e
		return 0, true
	}
	e.times++
	e.text = text
	e.quiet.Reset(repeatQuiet)
	if now.Sub(e.logged) < repeatInterval {
		e.left++
		return 0, false
	}
	left, e.left, e.logged = e.left, 0, now
	return left, true
}

// over forgets an error that stayed away, and logs that if it had repeated.
func (s *repeatState) over(key repeatKey) {
	s.mu.Lock()
	e := s.seen[key]
	delete(s.seen, key)
	s.mu.Unlock()
	if e == nil || e.times == 1 {
		return
	}
	r := slog.NewRecord(time.Now(), slog.LevelInfo, "an error has stopped repeating", key.place)
	r.AddAttrs(slog.String("was", key.message), slog.String("error", e.text), slog.Int("times", e.times), slog.Int("repeated", e.left))
	if e.handler.Enabled(context.Background(), r.Level) {
		_ = e.handler.Handle(context.Background(), r) // there is no caller
	}
}
