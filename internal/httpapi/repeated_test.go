package httpapi

import "testing"

func TestRepeatedField(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}`: "",
		`{"a":1,"a":2}`:         "a",
		`{"a":1,"\u0061":2}`:    "a",
		`{"app":1,"APP":2}`:     "APP",
		`{"shows":1,"ſhows":2}`: "ſhows",
		`{"keys":{"auth":"x","p":{},"auth":"y"},"keys":1}`: "keys.auth",
		`[1,[{"a":[{"b":1,"b":2}]}]]`:                      "a.b",
		`{"a":1,"a":`:                                      "a",
		`{"a":1,b`:                                         "",
		`{"a":[1,`:                                         "",
		`"a"`:                                              "",
		``:                                                 "",
	} {
		if got := repeatedField([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
