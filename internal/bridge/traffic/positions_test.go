package traffic

import (
	"errors"
	"testing"

	"github.com/badged/badged/internal/cluster"
)

// A later number names also what the earlier ones do.
func TestPositionsOfShards(t *testing.T) {
	var p positions
	if n, err := p.number("4711"); n != 4711 || err != nil || p.position(4711) != "4711" {
		t.Errorf("the position of one database is %d (%v)", n, err)
	}
	for i, step := range []struct{ position, joined string }{
		{"0.a.10.b.20", "0.a.10.b.20"}, {"0.b.7", "0.a.10.b.20"}, {"2.c.5", "0.a.10.b.20.c.5"},
	} {
		n, err := p.number(step.position)
		if err != nil || n != int64(i+1) || p.position(n) != step.joined {
			t.Errorf("%s is number %d, which is %s (%v); want %s", step.position, n, p.position(n), err, step.joined)
		}
	}
	if _, err := p.number("x"); !errors.Is(err, cluster.ErrBadPosition) {
		t.Errorf("x: %v", err)
	}
}
