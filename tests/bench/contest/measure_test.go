package contest

import (
	"errors"
	"strings"
	"testing"
)

func TestStatistics(t *testing.T) {
	if got := Median([]float64{5, 1, 3}); got != 3 {
		t.Errorf("the median of 1 3 5 is %v", got)
	}
	if got := Median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("the median of 1 2 3 4 is %v", got)
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		sorted []float64
		p      float64
		want   float64
	}{
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred, 0, 1},
		{hundred[:10], 99, 10},
		{hundred[:3], 50, 2},
		{hundred[:1], 50, 1},
		{nil, 50, 0},
	} {
		if got := Percentile(c.sorted, c.p); got != c.want {
			t.Errorf("percentile %v of 1 to %d is %v, want %v", c.p, len(c.sorted), got, c.want)
		}
	}
	for n, want := range map[float64]string{0: "0", 0.098: "0.098", 0.00123: "0.0012", 3: "3", 3.14159: "3.14", 42.66: "42.7", 60: "60", 100.4: "100", 59835: "59,835", 1234567: "1,234,567"} {
		if got := FormatNumber(n); got != want {
			t.Errorf("%v is written %s, want %s", n, got, want)
		}
	}
}

func TestCheckTotals(t *testing.T) {
	want := map[string]int64{"a": 1, "b": 2, "c": 0}
	if err := CheckTotals(map[string]int64{"a": 1, "b": 2, "c": 0}, want); err != nil {
		t.Errorf("all is right, but got %v", err)
	}
	// The sum is right.
	err := CheckTotals(map[string]int64{"a": 2, "b": 1, "c": 0}, want)
	if !errors.Is(err, ErrWrong) || !strings.Contains(err.Error(), "user a has 2 unread, must have 1") {
		t.Errorf("two totals are wrong: %v", err)
	}
	if err := CheckTotals(map[string]int64{"a": 1, "b": 2}, want); !errors.Is(err, ErrWrong) {
		t.Errorf("a user is missing: %v", err)
	}
}
