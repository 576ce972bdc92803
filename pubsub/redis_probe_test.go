package pubsub_test

import (
	"strings"
	"testing"

	"github.com/badged/badged/pubsub"
)

func TestProbeRedis(t *testing.T) {
	srv := startRedis(t)
	p, err := pubsub.ProbeRedis(t.Context(), srv.URL())
	if err != nil || p.Mode != "standalone" || p.Version == "" || p.Sharded != !strings.HasPrefix(p.Version, "6.") {
		t.Errorf("ProbeRedis = %+v, %v", p, err)
	}
	// A user that may run commands but not use channels.
	if err := newClient(t, srv).Do(t.Context(), "ACL", "SETUSER", "mute", "on", ">secret", "+@all", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	p, err = pubsub.ProbeRedis(t.Context(), strings.Replace(srv.URL(), "redis://", "redis://mute:secret@", 1))
	if err == nil || p.Version == "" || !strings.HasPrefix(err.Error(), "subscribe to badged:probe:") || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("without access to channels: %+v, %v", p, err)
	}
	srv.Stop()
	if _, err := pubsub.ProbeRedis(t.Context(), srv.URL()); err == nil || !strings.HasPrefix(err.Error(), "read the version of Redis: ") {
		t.Errorf("of a Redis that is gone: %v", err)
	}
}
