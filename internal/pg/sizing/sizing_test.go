package sizing

import (
	"math"
	"strings"
	"testing"
)

var small = Load{
	Users: 1e6, MessagesPerDay: 20e6, Members: 3, Reads: 0.5, Conversations: 30,
	Connected: 0.1, Peak: 4, LogDays: 30, Cores: 16, WAL: 200e6, Disk: 4e12,
}

// Estimates the example chat of docs/scaling.md, with one event for each message.
func TestEstimate(t *testing.T) {
	n := Estimate(small)
	for _, v := range []struct {
		name      string
		got, want float64
	}{
		{"events", n.EventsPerSecond, 50e6 / 86400},
		{"changes", n.ChangesPerSecond, 90e6 / 86400},
		{"cores", n.PostgresCores + n.BadgedCores, 4 * (19e-6*50e6 + 10.6e-6*40e6) / 86400},
		{"shards", float64(n.Shards), 1},
		{"processes that ingest", float64(n.Ingesting), 1},
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
}

// A load that exceeds one server gets the smallest sufficient number of shards, and the
// estimate names the resource that limits it.
func TestShards(t *testing.T) {
	for _, test := range []struct {
		name      string
		change    func(l *Load)
		least     int
		limitedBy string
	}{
		{"much disk", func(l *Load) { l.Users, l.Conversations, l.Cores = 100e6, 300, 1024 }, 2, "disk"},
		{"many messages", func(l *Load) { l.MessagesPerDay, l.Single, l.LogDays, l.Disk = 2e9, true, 1, 1e15 }, 3, "cores"},
		{"much WAL", func(l *Load) { l.MessagesPerDay, l.LogDays, l.Disk, l.Cores = 20e9, 1, 1e15, 1024 }, 3, "WAL"},
	} {
		l := small
		test.change(&l)
		n := Estimate(l)
		if !n.Fits || n.Shards < test.least || n.LimitedBy != test.limitedBy {
			t.Errorf("%s: %d shards for their %s, want %d or more for their %s", test.name, n.Shards, n.LimitedBy, test.least, test.limitedBy)
		}
		fewer := needsOn(l, n.Shards-1)
		if l.lacks(&n) != "" || l.lacks(&fewer) == "" {
			t.Errorf("%s: %d shards are not the fewest that suffice", test.name, n.Shards)
		}
	}
	// A message to users of several shards is an event in each.
	l := small
	l.Members = 1000
	if one, many := needsOn(l, 1), needsOn(l, 8); many.PostgresCores <= one.PostgresCores || many.Log <= one.Log || many.ChangesPerSecond != one.ChangesPerSecond {
		t.Errorf("on eight shards: %+v, on one %+v", many, one)
	}
	if n := touched(4, 1); math.Abs(n-1) > 1e-9 {
		t.Errorf("a user is in %g shards", n)
	}
	if n := touched(4, 1e6); math.Abs(n-4) > 1e-9 {
		t.Errorf("a million users are in %g of 4 shards", n)
	}
	l.MessagesPerDay, l.Members = 1e15, 10_000
	if n := Estimate(l); n.Fits || n.Shards != MaxShards {
		t.Errorf("it fits %d shards", n.Shards)
	}
}

// A message to a room costs the same for any number of members.
func TestRoomsAndPushes(t *testing.T) {
	l := small
	l.Rooms, l.Reads, l.Push = true, 0, 0.5
	few, many := l, l
	few.Members, many.Members = 100, 100_000
	if a, b := needsOn(few, 1), needsOn(many, 1); a.PostgresCores != b.PostgresCores || a.Log != b.Log || math.Abs(a.PostgresCores-4*20e6/86400*800e-6*0.45) > 1e-9 {
		t.Errorf("100 members: %+v, 100,000: %+v", a, b)
	}
	if err := many.Check(); err != nil {
		t.Error(err)
	}
	if many.Rooms = false; many.Check() == nil {
		t.Error("an event may name 100,000 users")
	}
	many.Rooms, many.Webhooks, few.Webhooks = true, 2, 2
	if a, b := needsOn(few, 1), needsOn(many, 1); b.CallsPerSecond != 0 || math.Abs(a.CallsPerSecond-2*4*a.ChangesPerSecond) > 1e-6 || math.Abs(a.BadgedCores-b.BadgedCores-0.55*100e-6*a.CallsPerSecond) > 1e-6 {
		t.Errorf("two webhooks, 100 members: %+v, 100,000: %+v", a, b)
	}
	if n := Estimate(few); math.Abs(n.PushesPerSecond-n.ChangesPerSecond*0.5*0.9*4) > 1e-6 {
		t.Errorf("%g pushes a second", n.PushesPerSecond)
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
