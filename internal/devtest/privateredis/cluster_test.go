package privateredis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// startCluster runs a cluster that ends with the test, and returns a client of it.
func startCluster(t *testing.T, cfg ClusterConfig) (*Cluster, *redis.ClusterClient) {
	t.Helper()
	c, err := StartCluster(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	opt, err := redis.ParseClusterURL(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClusterClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return c, client
}

func TestClusterMovesSlots(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	c, client := startCluster(t, ClusterConfig{})
	for _, key := range []string{"a", "b", "c", "d"} {
		if err := client.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const key = "nothing"
	from, err := c.MasterOf(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	to := (from + 1) % len(c.Masters)
	if err := c.MoveSlot(t.Context(), key, from, to); err != nil {
		t.Fatal(err)
	}
	if got, err := c.MasterOf(t.Context(), key); err != nil || got != to {
		t.Errorf("the slot is at master %d, %v, want %d", got, err, to)
	}
	if err := client.Set(t.Context(), key, "v", 0).Err(); err != nil {
		t.Error(err)
	}
}

func TestReplicasTakeOver(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	c, _ := startCluster(t, ClusterConfig{Replicas: true})
	master, err := c.MasterOf(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	c.Masters[master].Kill()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for { // until it serves or the test times out
		took, err := c.Replicas[master].says(t.Context(), "role:master", "INFO", "replication")
		if err != nil {
			t.Fatal(err)
		}
		if took {
			break
		}
		<-look.C
	}
	if err := c.Replicas[master].do(t.Context(), "SET", "k", "v"); err != nil {
		t.Errorf("the replica does not serve the slots of its master: %v", err)
	}
}
