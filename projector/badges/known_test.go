package badges

import (
	"strconv"
	"testing"
)

func TestKnownMembersAreBounded(t *testing.T) {
	var k known
	for i := range maxKnown + 10 {
		k.add(strconv.Itoa(i))
	}
	if len(k.ids) != maxKnown || !k.has(strconv.Itoa(maxKnown+9)) || k.has("stranger") {
		t.Errorf("%d users are known, the last: %t, want %d", len(k.ids), k.has(strconv.Itoa(maxKnown+9)), maxKnown)
	}
}
