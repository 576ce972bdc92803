// Package progress shows people how far a command is: a bar on a terminal, a
// line of text now and then on anything else.
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

// Meter counts what is done in the phases of a command, one after the other,
// and shows it. It is safe for concurrent use.
type Meter struct {
	now func() time.Time

	mu      sync.Mutex
	display display
	lines   *lines // what Lines goes on with
	gauge   gauge
	began   time.Time
}

// New returns a meter that shows on w how far the command of a name is; nil
// shows nothing. now defaults to time.Now.
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

// Begin begins a phase of a size, in a unit that only its ratio to what is done
// depends on; 0 where it is not known. countsEvents says whether Advance will
// be told of events.
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

// Advance adds events, and moves what is done of the phase up to done, never
// back.
func (m *Meter) Advance(done int64, events int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gauge.done = max(m.gauge.done, done)
	if m.gauge.total > 0 { // what is gone through may grow meanwhile
		m.gauge.total = max(m.gauge.total, m.gauge.done)
	}
	m.gauge.events += int64(events)
	m.gauge.elapsed = m.now().Sub(m.began)
	m.display.show(m.gauge)
}

// Note shows a line of text.
func (m *Meter) Note(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.display.note(text)
}

// Lines ends a bar where it stands and goes on with lines: a bar would draw
// over what is printed from now on.
func (m *Meter) Lines() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lines != nil {
		m.display.close()
		m.display = m.lines
	}
}

// Close ends what is shown; it stays where it is.
func (m *Meter) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.display.close()
	m.display = nothing{}
}

// Count returns n ≥ 0 with its thousands set apart, such as "59,835".
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// gauge is how far one phase is.
type gauge struct {
	phase string
	// done of total is how much of the phase is over; total is 0 where it is
	// not known.
	done, total int64
	// events is how many events the phase has dealt with, -1 where it does not
	// count them.
	events  int64
	elapsed time.Duration
}

// rate returns events per second, 0 where no time has passed.
func (g gauge) rate() int64 {
	if g.elapsed <= 0 {
		return 0
	}
	return int64(float64(g.events) / g.elapsed.Seconds())
}

// left returns how long the rest will take at the pace so far; ok is false
// where that cannot be said, or nothing is left.
func (g gauge) left() (left time.Duration, ok bool) {
	if g.done <= 0 || g.done >= g.total {
		return 0, false
	}
	ratio := float64(g.total-g.done) / float64(g.done)
	return time.Duration(ratio * float64(g.elapsed)).Round(time.Second), true
}

// numbers returns what there is to say beside a percentage.
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

// display shows progress to people.
type display interface {
	// show shows where a phase is. Phases come one after the other.
	show(g gauge)
	// note shows a line of text.
	note(text string)
	// close ends the display; what it showed stays.
	close()
}

// nothing is the display of those who do not look.
type nothing struct{}

func (nothing) show(gauge)  {}
func (nothing) note(string) {}
func (nothing) close()      {}

// lines is a display of lines of text, at most one per lineInterval besides
// notes. What cannot be written is not missed.
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
