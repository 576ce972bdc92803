package traffic

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vbauerster/mpb/v8"
)

func TestProgressLines(t *testing.T) {
	var out strings.Builder
	clock := newTestClock()
	m := newMeter(newDisplay(&out, clock), clock)
	m.begin("publish", 1000, true)
	clock.pass(4 * time.Second)
	m.advance(100, 2000) // too soon for a line
	clock.pass(6 * time.Second)
	m.advance(250, 23_000)
	m.note("down: trying again")
	m.advance(200, 1) // an older batch
	clock.pass(5 * time.Second)
	m.advance(1200, 1) // the file has grown
	m.begin("fold", 4, false)
	clock.pass(6 * time.Second)
	m.advance(1, 0)
	m.begin("from a pipe", 0, true)
	clock.pass(10 * time.Second)
	m.advance(77, 10)
	m.close()
	const want = `replay: publish: 25%, 25,000 events, 2,500/s, 30s left
replay: down: trying again
replay: publish: 100%, 25,002 events, 1,666/s
replay: fold: 25%, 18s left
replay: from a pipe: 10 events, 1/s
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestNoProgressWhereNobodyLooks(t *testing.T) {
	clock := newTestClock()
	m := newMeter(newDisplay(nil, clock), clock)
	m.begin("publish", 1, true)
	m.advance(1, 1)
	m.note("a note")
	m.close()
}

func TestBars(t *testing.T) {
	for _, tt := range []struct {
		name string
		show func(m *meter, c *testClock)
		want []string
	}{
		{
			"two phases",
			func(m *meter, c *testClock) {
				m.begin("publish", 1000, true)
				c.pass(10 * time.Second)
				m.advance(1000, 50_000)
				m.begin("fold", 2, false)
				m.note("down: trying again")
				m.advance(2, 0)
			},
			[]string{"publish", "100 %", "[#####", "50,000 events, 5,000/s", "fold", "replay: down: trying again\n"},
		},
		{
			"a phase that ends early",
			func(m *meter, c *testClock) {
				m.begin("publish", 1000, true)
				c.pass(10 * time.Second)
				m.advance(250, 50_000)
			},
			[]string{"25 %", "50,000 events, 5,000/s, 30s left"},
		},
		{
			"a file that grows when the bar is full",
			func(m *meter, c *testClock) {
				m.begin("publish", 10, true)
				c.pass(time.Second)
				m.advance(10, 1)
				m.advance(15, 70)
			},
			[]string{"100 %", "71 events"},
		},
		{
			"a pipe",
			func(m *meter, c *testClock) {
				m.begin("publish", 0, true)
				c.pass(10 * time.Second)
				m.advance(250, 50_000)
			},
			[]string{"publish", "50,000 events, 5,000/s"},
		},
		{"nothing shown", func(*meter, *testClock) {}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			clock := newTestClock()
			m := newMeter(newBars(&out, mpb.WithAutoRefresh()), clock)
			tt.show(m, clock)
			m.close() // after which nothing writes to out any more
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, out.String())
				}
			}
		})
	}
}

func TestSummaryPrint(t *testing.T) {
	s := Summary{
		File: "CollegeMsg.txt", Events: 95_961, Messages: 59_835, Reads: 36_126,
		PublishSeconds: 1.2345, PublishedPerSecond: 77_733.4, FoldSeconds: 2.5, FoldedPerSecond: 38_384.4,
		Users: 1_899, UsersWithUnread: 1_000, TotalUnread: 12_345_678, Mentions: 3,
	}
	for _, tt := range []struct {
		name    string
		summary Summary
		want    string
	}{
		{"complete", s, `file       CollegeMsg.txt
messages   59,835
reads      36,126
events     95,961
published  in 1.235s, 77,733 events/s
folded     in 2.5s, 38,384 events/s
users      1,899, 1,000 with unread
unread     12,345,678
mentions   3
`},
		{"stopped", Summary{File: "-", Events: 1, Messages: 1}, "file      -\nmessages  1\nreads     0\nevents    1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			if err := tt.summary.Print(&out); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"file":"CollegeMsg.txt","events":95961,"messages":59835,"reads":36126,` +
		`"publish_seconds":1.2345,"fold_seconds":2.5,"published_per_second":77733.4,"folded_per_second":38384.4,` +
		`"users":1899,"users_with_unread":1000,"total_unread":12345678,"mentions":3}`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}
