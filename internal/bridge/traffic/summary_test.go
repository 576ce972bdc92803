package traffic

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
