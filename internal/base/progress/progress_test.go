package progress

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vbauerster/mpb/v8"
)

// testClock moves only when a test calls pass.
type testClock struct{ t time.Time }

func newTestClock() *testClock { return &testClock{t: time.Unix(1_000_000, 0)} }

func (c *testClock) now() time.Time { return c.t }

func (c *testClock) pass(d time.Duration) { c.t = c.t.Add(d) }

func TestProgressLines(t *testing.T) {
	var out strings.Builder
	clock := newTestClock()
	m := New(&out, "load", clock.now)
	m.Begin("publish", 1000, true)
	clock.pass(4 * time.Second)
	m.Advance(100, 2000) // too soon for a line
	clock.pass(6 * time.Second)
	m.Advance(250, 23_000)
	m.Note("down: trying again")
	m.Advance(200, 1) // an older batch
	clock.pass(5 * time.Second)
	m.Advance(1200, 1) // the file has grown
	m.Begin("fold", 4, false)
	clock.pass(6 * time.Second)
	m.Advance(1, 0)
	m.Begin("from a pipe", 0, true)
	clock.pass(10 * time.Second)
	m.Advance(77, 10)
	m.Close()
	const want = `load: publish: 25%, 25,000 events, 2,500/s, 30s left
load: down: trying again
load: publish: 100%, 25,002 events, 1,666/s
load: fold: 25%, 18s left
load: from a pipe: 10 events, 1/s
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestNoProgressWithoutAWriter(t *testing.T) {
	clock := newTestClock()
	m := New(nil, "load", clock.now)
	m.Begin("publish", 1, true)
	m.Advance(1, 1)
	m.Note("a note")
	m.Lines()
	m.Close()
}

func TestBars(t *testing.T) {
	for _, tt := range []struct {
		name string
		show func(m *Meter, c *testClock)
		want []string
	}{
		{
			"two phases",
			func(m *Meter, c *testClock) {
				m.Begin("publish", 1000, true)
				c.pass(10 * time.Second)
				m.Advance(1000, 50_000)
				m.Begin("fold", 2, false)
				m.Note("down: trying again")
				m.Advance(2, 0)
			},
			[]string{"publish", "100 %", "[#####", "50,000 events, 5,000/s", "fold", "load: down: trying again\n"},
		},
		{
			"a phase that ends early",
			func(m *Meter, c *testClock) {
				m.Begin("publish", 1000, true)
				c.pass(10 * time.Second)
				m.Advance(250, 50_000)
			},
			[]string{"25 %", "50,000 events, 5,000/s, 30s left"},
		},
		{
			"a file that grows when the bar is full",
			func(m *Meter, c *testClock) {
				m.Begin("publish", 10, true)
				c.pass(time.Second)
				m.Advance(10, 1)
				m.Advance(15, 70)
			},
			[]string{"100 %", "71 events"},
		},
		{
			"a pipe",
			func(m *Meter, c *testClock) {
				m.Begin("publish", 0, true)
				c.pass(10 * time.Second)
				m.Advance(250, 50_000)
			},
			[]string{"publish", "50,000 events, 5,000/s"},
		},
		{
			"lines in place of a bar, where results are printed",
			func(m *Meter, c *testClock) {
				m.Begin("verify", 100, true)
				c.pass(10 * time.Second)
				m.Advance(25, 50)
				m.Lines()
				c.pass(10 * time.Second)
				m.Advance(50, 50)
			},
			[]string{"25 %", "load: verify: 50%, 100 events, 5/s, 20s left\n"},
		},
		{"nothing shown", func(*Meter, *testClock) {}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			clock := newTestClock()
			m := New(&out, "load", clock.now)
			m.display = newBars(&out, "load", mpb.WithAutoRefresh())
			tt.show(m, clock)
			m.Close() // after this nothing writes to out
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, out.String())
				}
			}
		})
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 12_345_678: "12,345,678"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %s, want %s", n, got, want)
		}
	}
}
