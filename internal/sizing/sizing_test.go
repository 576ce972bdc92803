package sizing

import (
	"math"
	"strings"
	"testing"
)

var small = Load{
	Users: 1e6, MessagesPerDay: 20e6, Members: 3, Reads: 0.5, Conversations: 30,
	Connected: 0.1, Peak: 4, LogDays: 30, Cores: 16,
}

// The chat of the example in docs/operations.md, with an event for each message.
func TestEstimate(t *testing.T) {
	n := Estimate(small)
	for _, v := range []struct {
		name      string
		got, want float64
	}{
		{"events", n.EventsPerSecond, 50e6 / 86400},
		{"changes", n.ChangesPerSecond, 90e6 / 86400},
		{"cores", n.PostgresCores + n.BadgedCores, 4 * (19e-6*50e6 + 10.6e-6*40e6) / 86400},
		{"servers", float64(n.Servers), 1},
		{"WAL", n.WALPerSecond, 4 * 360 * 90e6 / 86400},
		{"tables", n.Tables, 1e6 * (470 + 30*300)},
		{"keys", n.Keys, (18*50e6 + 8*40e6) * 21},
		{"log", n.Log, (35*50e6 + 5*40e6) * 30},
		{"connections", n.Connections, 1e5},
		{"gateways", float64(n.Gateways), 7},
		{"gateway memory", n.GatewayBytes, 1e5 * 11 * 1024},
		{"Redis", n.RedisPerSecond, 4 * 0.1 * 90e6 / 86400},
	} {
		if math.Abs(v.got-v.want) > 1e-6*v.want {
			t.Errorf("%s: %g, want %g", v.name, v.got, v.want)
		}
	}
	single, many := small, small
	single.Single, many.Users = true, 3e6
	if s := Estimate(single); s.PostgresCores < 10*n.PostgresCores || s.Log < 5*n.Log || s.WALPerSecond <= n.WALPerSecond {
		t.Errorf("published one at a time: %+v, in bulk %+v", s, n)
	}
	if m := Estimate(many); math.Abs(m.PostgresCores-2*n.PostgresCores) > 1e-9 {
		t.Errorf("with many users: %+v", m)
	}
	huge := small
	huge.MessagesPerDay, huge.Members = 50e9, 10
	if h := Estimate(huge); h.Servers < 2 {
		t.Errorf("it takes %d servers, with %g cores of Postgres", h.Servers, h.PostgresCores)
	}
}

func TestLoadsAreChecked(t *testing.T) {
	if err := small.Check(); err != nil {
		t.Error(err)
	}
	bad := small
	bad.Users, bad.Connected, bad.Peak = 0, 1.5, math.NaN()
	err := bad.Check()
	for _, name := range []string{"--users", "--connected must be from 0 to 1, is 1.5", "--peak"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}
