package httpapi

import (
	"fmt"
	"testing"
)

func TestCheckFields(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}`: "<nil>",
		`{"a":1,"a":2}`:         "a is given twice",
		`{"a":1,"\u0061":2}`:    "a is given twice",
		`{"app":1,"APP":2}`:     "APP is given twice",
		`{"shows":1,"ſhows":2}`: "ſhows is given twice",
		`{"keys":{"auth":"x","p":{},"auth":"y"},"keys":1}`: "keys.auth is given twice",
		`[1,[{"a":[{"b":1,"b":2}]}]]`:                      "a.b is given twice",
		`{"a":1,"a":`:                                      "a is given twice",
		`{"a":1,b`:                                         "<nil>",
		`{"a":[1,`:                                         "<nil>",
		`{"user":"","max_load":1}`:                         "user must not be empty: give a value, or leave it out",
		`{"users":[ ]}`:                                    "users must not be empty: give a value, or leave it out",
		`{"keys":{"auth":"","x":[]},"users":["",[]],"on":false,"n":0,"user":null}`: "<nil>",
		`"a"`: "<nil>",
		``:    "<nil>",
	} {
		if got := fmt.Sprint(checkFields([]byte(text))); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
