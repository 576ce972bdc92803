package revocation

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// bytesOf returns the bytes on the heap that fill takes, for a table.
func bytesOf(fill func() *table) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	t := fill()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(t)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// A user with revoked tokens takes 20 to 40 bytes, however many there are.
func TestMemoryOfRevocations(t *testing.T) {
	for _, users := range []int{100_000, 150_000, 200_000, 300_000} {
		size := bytesOf(func() *table {
			table := newTable([]byte("secret"))
			for i := range users {
				table.set(keyOf(digestOf(table.secret, fmt.Sprint("user ", i))), int64(i))
			}
			return table
		})
		each := float64(size) / float64(users)
		t.Logf("%d users take %.1f bytes each", users, each)
		if each > 42 {
			t.Errorf("%d users take %.1f bytes each", users, each)
		}
	}
}

func TestTable(t *testing.T) {
	table := newTable([]byte("secret"))
	at := time.UnixMicro(1_000_000)
	ann, bob := digestOf(table.secret, "ann"), digestOf(table.secret, "bob")
	table.set(keyOf(ann), at.UnixMicro())
	table.set(erasedKeyOf(ann), at.Add(-time.Microsecond).UnixMicro())
	table.set(erasedKeyOf(bob), at.Add(time.Microsecond).UnixMicro())
	want := func(user string, issued time.Time, revoked bool) {
		t.Helper()
		if got := table.revoked(user, issued); got != revoked {
			t.Errorf("a token of %s issued at %s is revoked: %t", user, issued, got)
		}
	}
	want("ann", at.Add(-time.Nanosecond), true)
	want("ann", at, false)
	want("bob", at, true)
	want("bob", time.Time{}, true)
	want("cat", time.Time{}, false)
	table.forget(at)
	if n := table.users.Load(); n != 2 {
		t.Errorf("%d entries are left, want 2", n)
	}
	want("ann", time.Time{}, true)
	table.forget(at.Add(time.Hour))
	want("ann", time.Time{}, false)
	want("bob", time.Time{}, false)
}
