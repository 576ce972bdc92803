package obs

import (
	"context"
	"log/slog"
	"regexp"
	"sync"
	"time"
)

const (
	// repeatInterval is the time between two log lines about a repeating error.
	repeatInterval = time.Minute
	// repeatQuiet is the time without a repetition after which an error counts as over. It
	// exceeds the pauses between retries.
	repeatQuiet = 30 * time.Second
	// maxRepeats is the most errors that are remembered. Beyond it, new errors are logged each
	// time.
	maxRepeats = 1000
)

// repeats is a slog.Handler that limits repeated errors: it logs the first error, then one a
// minute with the number of suppressed errors (repeated=N), and a last line once the error has
// not occurred for 30 s.
//
// It applies to warnings and errors with the attribute "error". Two records are the same error
// if they have the same place in the code, level, message and error text. Numbers in the text,
// such as partitions, positions and ports, are ignored, except Postgres error codes. A record
// with the attribute "id" concerns one object and is always logged.
type repeats struct {
	next  slog.Handler
	state *repeatState
}

// repeatState is the state that all handlers of a logger share.
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

// repeated is an error that was logged and may repeat.
type repeated struct {
	handler slog.Handler
	text    string // of the latest error
	logged  time.Time
	times   int // including the first
	left    int // not logged since the last line
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

// errorOf returns the text of a record's error. ok is false if the record has no error or must
// always be logged.
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

// note counts an error. It reports whether to log the error, and how many repetitions were
// suppressed since the last line.
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

// over removes an error that has not occurred for repeatQuiet. If the error had repeated, it
// logs that it has stopped.
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
		_ = e.handler.Handle(context.Background(), r) // no caller could handle an error
	}
}
