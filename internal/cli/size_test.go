package cli

import (
	"strings"
	"testing"
)

func TestSize(t *testing.T) {
	out := mustDo(t, "size", "--users=1e6", "--messages-per-day=20e6")
	const want = `events    579/s on average, with changes for 1,042 users/s
Postgres  0.03 cores at the peak, 1 shard
badged    0.03 cores at the peak, for publishing, folding and webhooks
WAL       1.5 MB/s at the peak
disk      93.6 GB: users and conversations 9.47 GB, event keys 25.6 GB, log 58.5 GB
Redis     at most 417 updates/s at the peak
broker    1 × badged ingest, if the events come from one
gateways  7 processes for 100,000 connections, 1.13 GB
`
	if out != want {
		t.Errorf("it prints\n%swant\n%s", out, want)
	}
	if out := mustDo(t, "size", "--users=100e6", "--messages-per-day=5e12"); !strings.Contains(out, "This does not fit 1,024 shards") {
		t.Errorf("it prints\n%s", out)
	}
	if out := mustDo(t, "size", "--users=100e6", "--messages-per-day=5e9", "--members=20", "--push=0.5"); !strings.Contains(out, " shards, for their disk") || !strings.Contains(out, "pushes ") {
		t.Errorf("it prints\n%s", out)
	}
	if out := mustDo(t, "size", "--users=1e6", "--messages-per-day=20e6", "--json"); !strings.Contains(out, `"shards": 1,`) {
		t.Errorf("it prints\n%s", out)
	}
	expectUsage(t, map[string]string{
		"size":                                "--users must be from 1 to 1e+11, is 0",
		"size --users=0 --messages-per-day=1": "--users must be from 1 to 1e+11, is 0",
		"size --users=many --messages-per-day=1e6": "--users",
	})
}
