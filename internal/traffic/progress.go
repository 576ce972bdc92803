package traffic

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8/cwriter"
)

// lineInterval is the time between two lines of progress.
const lineInterval = 5 * time.Second

// gauge is how far one phase of a replay is.
type gauge struct {
	phase string
	// done of total is how much of the phase is over, in a unit that only
	// their ratio depends on; total is 0 where it is not known.
	done, total int64
	// events is how many events the phase has dealt with, -1 where it does not
	// count them.
	events  int64
	elapsed time.Duration
}

// rate returns events per second.
func (g gauge) rate() float64 { return perSecond(g.events, g.elapsed) }

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
		s = fmt.Sprintf("%s events, %s/s", formatCount(g.events), formatCount(int64(g.rate())))
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

// newDisplay returns a display on w: a bar on a terminal, a line now and then
// on anything else, and nothing where w is nil.
func newDisplay(w io.Writer, c clock) display {
	switch {
	case w == nil:
		return nothing{}
	case cwriter.New(w).IsTerminal():
		return newBars(w)
	}
	return &progressLines{w: w, clock: c, shown: c.now()}
}

// nothing is the display of those who do not look.
type nothing struct{}

func (nothing) show(gauge)  {}
func (nothing) note(string) {}
func (nothing) close()      {}

// progressLines is a display of lines of text, at most one per lineInterval
// besides notes. What cannot be written is not missed.
type progressLines struct {
	w     io.Writer
	clock clock
	shown time.Time
}

func (l *progressLines) show(g gauge) {
	now := l.clock.now()
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

func (l *progressLines) note(text string) { _, _ = fmt.Fprintf(l.w, "replay: %s\n", text) }

func (l *progressLines) close() {}

// meter counts what is done in the phases of a replay, one after the other,
// and shows it. It is safe for concurrent use.
type meter struct {
	clock clock

	mu      sync.Mutex
	display display
	gauge   gauge
	began   time.Time
}

func newMeter(d display, c clock) *meter { return &meter{clock: c, display: d} }

// begin begins a phase of a size, 0 where it is not known. countsEvents says
// whether advance will be told of events.
func (m *meter) begin(phase string, total int64, countsEvents bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gauge = gauge{phase: phase, total: total}
	if !countsEvents {
		m.gauge.events = -1
	}
	m.began = m.clock.now()
	m.display.show(m.gauge)
}

// advance adds events, and moves what is done up to done, never back.
func (m *meter) advance(done int64, events int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gauge.done = max(m.gauge.done, done)
	if m.gauge.total > 0 { // a file may grow while it is read
		m.gauge.total = max(m.gauge.total, m.gauge.done)
	}
	m.gauge.events += int64(events)
	m.gauge.elapsed = m.clock.now().Sub(m.began)
	m.display.show(m.gauge)
}

func (m *meter) note(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.display.note(text)
}

func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.display.close()
}
