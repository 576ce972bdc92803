package scenarios

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// A load or a client with wrong totals fails.
func TestWrongTotalsFail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "traffic.txt")
	if err := rig.GenerateTraffic(file, 1000); err != nil {
		t.Fatal(err)
	}
	r, err := rig.New(t.Context(), rig.Config{Traffic: file, Log: rig.Progress{W: t.Output()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	r.Traffic.Want.Unread["1"]++
	r.Traffic.Want.Unread["2"]--
	if _, err := loadRound(t.Context(), r, rig.OneProcess); !errors.Is(err, measure.ErrWrong) || !strings.Contains(err.Error(), "2 of ") {
		t.Errorf("two totals are wrong, reported is %v", err)
	}
	r.Traffic.Want.Messages++
	if _, err := loadRound(t.Context(), r, rig.OneProcess); !errors.Is(err, measure.ErrWrong) {
		t.Errorf("a message is missing, got %v", err)
	}
}

func TestLoadIsChecked(t *testing.T) {
	want := rig.Tally{Messages: 3, Reads: 1, Unread: map[string]int64{"a": 2, "b": 0}}
	right := loaded{
		Events: 4, Messages: 3, Reads: 1, Users: 2, UsersWithUnread: 1, TotalUnread: 2,
		PublishSeconds: 1, FoldSeconds: 2,
	}
	if err := right.check(want, 2100_000_000); err != nil {
		t.Errorf("all is right, but got %v", err)
	}
	for name, change := range map[string]func(*loaded){
		"an event lost":               func(p *loaded) { p.Events-- },
		"a message lost":              func(p *loaded) { p.Messages-- },
		"a read lost":                 func(p *loaded) { p.Reads-- },
		"one more user":               func(p *loaded) { p.Users++ },
		"one more user with unread":   func(p *loaded) { p.UsersWithUnread++ },
		"one more unread":             func(p *loaded) { p.TotalUnread++ },
		"no time at all":              func(p *loaded) { p.PublishSeconds = 0 },
		"folded before published":     func(p *loaded) { p.FoldSeconds = 0.5 },
		"longer than the command ran": func(p *loaded) { p.FoldSeconds = 3 },
	} {
		got := right
		change(&got)
		if err := got.check(want, 2100_000_000); !errors.Is(err, measure.ErrWrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
