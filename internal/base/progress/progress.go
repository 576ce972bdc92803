// Package progress shows the progress of a command: as a bar on a terminal, and as lines of text on
// any other output.
//
// The package does not know the work whose progress it shows.
package progress

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8/cwriter"
)

// lineInterval is the time between two lines of progress.
const lineInterval = 5 * time.Second

// Meter measures and shows the progress of a command, whose phases run one after the other. It is
// safe for concurrent use.
type Meter struct {
	now func() time.Time

	mu      sync.Mutex
	display display
	lines   *lines // used after Lines
	gauge   gauge
	began   time.Time
}

// New returns a meter that shows the progress of the command `name` on w. If w is nil, nothing is
// shown. now defaults to time.Now.
func New(w io.Writer, name string, now func() time.Time) *Meter {
	if now == nil {
		now = time.Now
	}
	m := &Meter{now: now, display: nothing{}}
	if w == nil {
		return m
	}
	m.lines = &lines{w: w, name: name, now: now, shown: now()}
	m.display = m.lines
	if cwriter.New(w).IsTerminal() {
		m.display = newBars(w, name)
	}
	return m
}

// Begin begins a phase. total is the size of the phase in any unit, 0 if unknown. countsEvents
// reports whether calls of Advance will count events.
func (m *Meter) Begin(phase string, total int64, countsEvents bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gauge = gauge{phase: phase, total: total}
	if !countsEvents {
		m.gauge.events = -1
	}
	m.began = m.now()
	m.display.show(m.gauge)
}

// Advance adds `events` to the number of events of the phase. It sets the completed part of the
// phase to `done`, unless `done` is less than the part that was completed before.
func (m *Meter) Advance(done int64, events int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gauge.done = max(m.gauge.done, done)
	if m.gauge.total > 0 { // the total may grow during the phase, for example if a file is appended to
		m.gauge.total = max(m.gauge.total, m.gauge.done)
	}
	m.gauge.events += int64(events)
	m.gauge.elapsed = m.now().Sub(m.began)
	m.display.show(m.gauge)
}

// Note prints a line of text.
func (m *Meter) Note(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.display.note(text)
}

// Lines ends the bar and shows further progress as lines. It must be called before the command
// prints other output, since a bar would overwrite this output.
func (m *Meter) Lines() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lines != nil {
		m.display.close()
		m.display = m.lines
	}
}

// Close ends the display. Its output remains visible.
func (m *Meter) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.display.close()
	m.display = nothing{}
}

// Count returns n ≥ 0 with thousands separators, such as "59,835".
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// gauge is the progress of one phase.
type gauge struct {
	phase string
	// done is the completed part of total; total is 0 if unknown.
	done, total int64
	// events is the number of events in the phase, -1 if the phase does not count events.
	events  int64
	elapsed time.Duration
}

// rate returns the events per second, 0 if no time has passed.
func (g gauge) rate() int64 {
	if g.elapsed <= 0 {
		return 0
	}
	return int64(float64(g.events) / g.elapsed.Seconds())
}

// left estimates the remaining time of the phase from its speed so far. ok is false if there is no
// estimate, or if the phase is complete.
func (g gauge) left() (left time.Duration, ok bool) {
	if g.done <= 0 || g.done >= g.total {
		return 0, false
	}
	ratio := float64(g.total-g.done) / float64(g.done)
	return time.Duration(ratio * float64(g.elapsed)).Round(time.Second), true
}

// numbers returns the text to show beside the percentage.
func (g gauge) numbers() string {
	var s string
	if g.events >= 0 {
		s = fmt.Sprintf("%s events, %s/s", Count(g.events), Count(g.rate()))
	}
	if left, ok := g.left(); ok {
		if s != "" {
			s += ", "
		}
		s += fmt.Sprintf("%s left", left)
	}
	return s
}

// display shows progress.
type display interface {
	// show shows the current state of a phase. Phases are shown one after the other.
	show(g gauge)
	// note prints a line of text.
	note(text string)
	// close ends the display; its output stays.
	close()
}

// nothing is a display that shows nothing.
type nothing struct{}

func (nothing) show(gauge)  {}
func (nothing) note(string) {}
func (nothing) close()      {}

// lines is a display that prints lines of text: the progress at most once per lineInterval, and
// each note. It ignores write errors.
type lines struct {
	w     io.Writer
	name  string
	now   func() time.Time
	shown time.Time
}

func (l *lines) show(g gauge) {
	now := l.now()
	if now.Sub(l.shown) < lineInterval {
		return
	}
	l.shown = now
	line := g.phase + ": "
	if g.total > 0 {
		line += fmt.Sprintf("%d%%", 100*g.done/g.total)
		if numbers := g.numbers(); numbers != "" {
			line += ", " + numbers
		}
	} else {
		line += g.numbers()
	}
	l.note(line)
}

func (l *lines) note(text string) { _, _ = fmt.Fprintf(l.w, "%s: %s\n", l.name, text) }

func (l *lines) close() {}
