package contest

import (
	"fmt"
	"html"
	"strings"

	"github.com/badged/badged/tests/bench/measure"
)

// Sizes of a plot, in pixels. There is only one kind of plot, so a library would
// not save code.
const (
	plotWidth  = 720
	plotLabels = 190 // left of the bars
	plotValues = 110 // right of them
	plotBar    = 22
	plotStep   = 34
	plotTop    = 56
)

// plot returns an SVG image with a bar for each side: the median of the main
// measure, with a whisker from minimum to maximum. Colours suit light and dark
// pages. It fails if no round was completed.
func (r *Result) plot() (svg string, ok bool) {
	var bars []Series
	var names []string
	var most float64
	for _, s := range r.Sides {
		if m, ok := r.Series(s.Name, r.Main); ok {
			bars, names = append(bars, m), append(names, s.Name)
			most = max(most, m.Max)
		}
	}
	if most == 0 {
		return "", false
	}
	height := plotTop + len(bars)*plotStep + 8
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="system-ui, sans-serif" font-size="13">
<style>text { fill: #24292f } .bar { fill: #8c959f } .ours { fill: #2f81f7 } .whisker { stroke: #24292f } @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .whisker { stroke: #e6edf3 } }</style>
<text x="8" y="20" font-size="15" font-weight="600">%s</text>
<text x="8" y="40">%s in %s: median, least and greatest of %d rounds</text>
`, plotWidth, height, html.EscapeString(r.Scenario), html.EscapeString(r.Main), html.EscapeString(bars[0].Unit), len(bars[0].Values))
	scale := float64(plotWidth-plotLabels-plotValues) / most
	for i, m := range bars {
		y := plotTop + i*plotStep
		class := "bar"
		if strings.HasPrefix(names[i], "badged") {
			class = "bar ours"
		}
		middle := y + plotBar/2
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>
<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>
<line class="whisker" x1="%.1f" x2="%.1f" y1="%d" y2="%[11]d"/>
<text x="%.1f" y="%d">%s</text>
`,
			plotLabels-8, middle+4, html.EscapeString(names[i]),
			class, plotLabels, y, m.Median*scale, plotBar,
			plotLabels+m.Min*scale, plotLabels+m.Max*scale, middle,
			plotLabels+m.Max*scale+8, middle+4, measure.FormatNumber(m.Median))
	}
	b.WriteString("</svg>\n")
	return b.String(), true
}
