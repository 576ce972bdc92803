package config_test

import (
	"testing"

	"github.com/badged/badged/internal/server/config"
)

// What folds gets the first connections of those that there are.
func TestConnectionsWithin(t *testing.T) {
	full := config.Connections{Serving: 16, Folding: 12, Notifying: 8, Others: 5}
	for permitted, want := range map[int]config.Connections{
		100: full,
		41:  full,
		40:  {Serving: 15, Folding: 12, Notifying: 8, Others: 5},
		15:  {Serving: 3, Folding: 4, Notifying: 3, Others: 5},
		16:  {Serving: 4, Folding: 4, Notifying: 3, Others: 5},
		14:  {Serving: 3, Folding: 3, Notifying: 3, Others: 5},
		5:   {Serving: 3, Folding: 3, Notifying: 3, Others: 5}, // a server does not start
	} {
		got := full.Within(permitted)
		if got != want {
			t.Errorf("within %d: %+v, want %+v", permitted, got, want)
		}
	}
	if got := (config.Connections{Serving: 2, Others: 2}).Least(); got.Serving != 2 || got.Folding != 0 {
		t.Errorf("the least is %+v", got)
	}
}
