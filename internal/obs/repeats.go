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
	// repeatQuiet is the time after which an error that has not occurred again counts as over. It is
	// longer than the pauses between retries.
	repeatQuiet = 30 * time.Second
	// maxRepeats is the maximum number of different errors that are tracked at a time. Further errors
	// are logged each time that they occur.
	maxRepeats = 1000
)

// repeats is a slog.Handler that limits repeated errors. It logs the first occurrence of an error,
// and then one occurrence a minute, with the number of occurrences that it has suppressed since the
// last log line (repeated=N). If an error has occurred more than once, and then has not occurred
// for 30 s, it logs that the error has stopped.
//
// It applies to warnings and errors with the attribute "error". Two records are the same error if
// the same line of code logs them, and their levels, messages and error texts are equal. When error
// texts are compared, numbers such as partitions, positions and ports are ignored, except Postgres
// error codes. A record with the attribute "id" concerns one object, such as a user, and is always
// logged.
type repeats struct {
	next  slog.Handler
	state *repeatState
}

// repeatState is the state that is shared by a logger and the loggers derived from it.
type repeatState struct {
	mu   sync.Mutex
	seen map[repeatKey]*repeated
}

// repeatKey is equal for records that count as the same error.
type repeatKey struct {
	place          uintptr
	level          slog.Level
	message, error string
}

// repeated is an error that was logged and may occur again.
type repeated struct {
	handler slog.Handler
	text    string // of the latest error
	logged  time.Time
	times   int // occurrences, including the first
	left    int // occurrences that were not logged since the last log line
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

// errorOf returns the text of a record's attribute "error". ok is false if the record has no such
// attribute, or must always be logged.
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

// withoutNumbers replaces each number in text by #, except in Postgres error codes.
func withoutNumbers(text string) string {
	return numbers.ReplaceAllStringFunc(text, func(n string) string {
		if n[0] == 'S' {
			return n
		}
		return "#"
	})
}

// note counts an occurrence of an error. `log` reports whether the occurrence must be logged.
// `left` is the number of occurrences that were suppressed since the last log line.
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
		e.quiet = time.AfterFunc(repeatQuiet, func() { s.flush(key) })
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

// flush is called when an error has not occurred for repeatQuiet. It deletes the error from seen.
// If the error had occurred more than once, it also logs that the error has stopped.
func (s *repeatState) flush(key repeatKey) {
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
