package events_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/badged/badged/events"
)

// The partition of a user must never change: its rows and its part of the log
// are there.
func TestPartitionOfIsStable(t *testing.T) {
	for _, tc := range []struct {
		user                  string
		of1, of7, of16, of256 int
	}{
		{"alice", 0, 0, 9, 201},
		{"bob", 0, 5, 8, 216},
		{"user-1", 0, 4, 4, 228},
		{"42", 0, 0, 4, 180},
		{"用户", 0, 6, 6, 134},
		{"👩\u200d👩\u200d👧", 0, 5, 15, 95},
		{strings.Repeat("a", events.MaxIDBytes), 0, 2, 3, 19},
	} {
		for n, want := range map[int]int{1: tc.of1, 7: tc.of7, 16: tc.of16, 256: tc.of256} {
			if got := events.PartitionOf(tc.user, n); got != want {
				t.Errorf("PartitionOf(%q, %d) = %d, want %d", tc.user, n, got, want)
			}
		}
	}
}

func TestPartitionOfNoPartitions(t *testing.T) {
	for _, n := range []int{0, -1} {
		if p := events.PartitionOf("ann", n); p != 0 {
			t.Errorf("among %d partitions the user is in %d, want 0", n, p)
		}
	}
}

func TestPartitionOfSpreadsUsers(t *testing.T) {
	const users, n = 16_000, 16
	var sizes [n]int
	for i := range users {
		p := events.PartitionOf(fmt.Sprintf("user-%d", i), n)
		if p < 0 || p >= n {
			t.Fatalf("user-%d is in partition %d of %d", i, p, n)
		}
		sizes[p]++
	}
	// Five standard deviations about the mean of 1,000.
	for p, size := range sizes {
		if size < 847 || size > 1153 {
			t.Errorf("partition %d has %d of %d users", p, size, users)
		}
	}
}

// SQL computes the same partition, so that a backend can find a user's rows.
func TestPartitionOfInSQL(t *testing.T) {
	_, pool := newLog(t)
	for i := range 100 {
		user := fmt.Sprintf("用户-%d", i)
		var got int
		err := pool.QueryRow(t.Context(), `SELECT
('x' || encode(substr(sha256(convert_to($1, 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint % $2`, user, partitions).Scan(&got)
		if err != nil {
			t.Fatal(err)
		}
		if want := events.PartitionOf(user, partitions); got != want {
			t.Errorf("partition of %s is %d in SQL, %d in Go", user, got, want)
		}
	}
}

func TestTopic(t *testing.T) {
	for partition, want := range map[int]string{0: "events_p00", 7: "events_p07", 99: "events_p99", 255: "events_p255"} {
		if got := events.Topic(partition); got != want {
			t.Errorf("Topic(%d) = %s, want %s", partition, got, want)
		}
	}
}

// The key of an event must never change: it identifies repeated events.
func TestKeyIsStable(t *testing.T) {
	key := func(source, id string) string {
		e := events.Event{Source: source, ID: id}
		return e.Key().String()
	}
	for _, tc := range []struct{ source, id, want string }{
		{"/chat", "1", "f6796b7f-c90f-8117-91bb-2f46d784b6e6"},
		{"/chat", "2", "916772f1-e69f-8aad-b2a4-3f2ea9a37785"},
		{"/chat/1", "1", "e21b4860-0fb5-8130-b669-e16093401c73"},
	} {
		if got := key(tc.source, tc.id); got != tc.want {
			t.Errorf("key of (%s, %s) is %s, want %s", tc.source, tc.id, got, tc.want)
		}
	}
	if key("/cha", "t1") == key("/chat", "1") {
		t.Error("events of two sources share a key")
	}
}
