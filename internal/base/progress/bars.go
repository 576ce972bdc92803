package progress

import (
	"io"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bars is a display with one progress bar for each phase. Goroutines draw the bars until close is
// called.
type bars struct {
	name      string
	container *mpb.Progress
	bar       *mpb.Bar // of the current phase, nil before the first
	phase     string
	latest    *atomic.Pointer[gauge] // the text beside bar
}

// newBars returns a display on the terminal w. name is the name of the command.
func newBars(w io.Writer, name string, options ...mpb.ContainerOption) *bars {
	return &bars{name: name, container: mpb.New(append(options, mpb.WithOutput(w))...)}
}

func (b *bars) show(g gauge) {
	if b.bar == nil || b.phase != g.phase {
		b.freeze()
		b.add(g)
	}
	b.latest.Store(&g)
	b.bar.SetTotal(g.total, false)
	b.bar.SetCurrent(g.done)
}

// add adds a bar for the phase of g. If the size of the phase is unknown, the bar consists only of
// text.
func (b *bars) add(g gauge) {
	latest := new(atomic.Pointer[gauge])
	latest.Store(&g)
	var filler mpb.BarFillerBuilder = mpb.BarStyle().Lbound("[").Filler("#").Tip("#").Padding("-").Rbound("]")
	label := []decor.Decorator{decor.Name(g.phase, decor.WCSyncSpaceR)}
	if g.total > 0 {
		label = append(label, decor.Percentage(decor.WCSyncSpace))
	} else {
		filler = mpb.NopStyle()
	}
	b.phase, b.latest = g.phase, latest
	// Create the bar without a total: otherwise it would end when it is full, although its total
	// may still grow.
	b.bar = b.container.New(0, filler,
		mpb.PrependDecorators(label...),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return " " + latest.Load().numbers() })),
	)
}

// freeze ends the current bar. The terminal still shows its last state.
func (b *bars) freeze() {
	if b.bar != nil {
		b.bar.Abort(false)
	}
}

func (b *bars) note(text string) { _, _ = io.WriteString(b.container, b.name+": "+text+"\n") }

func (b *bars) close() {
	b.freeze()
	b.container.Wait()
}
