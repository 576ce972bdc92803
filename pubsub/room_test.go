package pubsub

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSeqsAsJSON(t *testing.T) {
	for text, want := range map[string]Seqs{
		`[]`:                      {},
		`[1,0]`:                   {{1, 1}},
		`[5,2,2,0]`:               {{5, 7}, {9, 9}},
		`[1000,0,1000,1]`:         {{1000, 1000}, {2000, 2001}},
		`[1,9223372036854775806]`: {{1, 1<<63 - 1}},
	} {
		var got Seqs
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if b, err := json.Marshal(want); err != nil || string(b) != text {
			t.Errorf("%v is %s, %v", want, b, err)
		}
	}
	for _, text := range []string{`[1]`, `[0,0]`, `[-1,0]`, `[1,-1]`, `[1,0,1,0]`, `[1,0,-1,0]`, `[2,9223372036854775807]`, `{}`} {
		if err := json.Unmarshal([]byte(text), new(Seqs)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
