package badge

import (
	"testing"
	"unsafe"
)

// A cached user keeps only its own id in memory, not the ids of the group that
// it was decoded with.
func TestUserKeepsItsOwnID(t *testing.T) {
	group := "ann,ben"
	if u := NewUser(group[:3]); u.ID != "ann" || unsafe.StringData(u.ID) == unsafe.StringData(group) {
		t.Errorf("%q is in the memory of %q", u.ID, group)
	}
}
