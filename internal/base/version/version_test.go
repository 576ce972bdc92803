package version

import (
	"runtime/debug"
	"testing"
)

func TestOf(t *testing.T) {
	built := func(v string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: v}} }
	for _, test := range []struct {
		name, stamp string
		info        *debug.BuildInfo
		want        string
	}{
		{"stamped", "v1.2.3", built("v1.2.2"), "v1.2.3"},
		{"from a tag", "", built("v1.2.2"), "v1.2.2"},
		{"without a history", "", built("(devel)"), "devel"},
		{"without modules", "", built(""), "devel"},
		{"without anything", "", nil, "devel"},
	} {
		if got := format(test.stamp, test.info); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	if String() == "" {
		t.Error("this program has no version")
	}
}
