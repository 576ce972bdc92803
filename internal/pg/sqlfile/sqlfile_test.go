package sqlfile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/pg/sqlfile"
)

func TestParse(t *testing.T) {
	f := sqlfile.Parse(`-- Statements for this test.

-- name: read a user
-- By key.
SELECT total
  -- what clients see
FROM badged.users_pNN WHERE user_id = $1;

-- name: key
user_id = $1

-- name: live
{key} AND NOT gone

-- name: read
SELECT '{}' FROM badged.users WHERE {live} OR {other}

-- name: count
SELECT count(*) FROM badged.users_pNN, badged.keys_pNN_baseline
`)
	want := sqlfile.File{
		"read a user": "SELECT total\nFROM badged.users_pNN WHERE user_id = $1",
		"key":         "user_id = $1",
		"live":        "user_id = $1 AND NOT gone",
		"read":        "SELECT '{}' FROM badged.users WHERE user_id = $1 AND NOT gone OR {other}",
		"count":       "SELECT count(*) FROM badged.users_pNN, badged.keys_pNN_baseline",
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("statements (-want +got):\n%s", diff)
	}
	if got := f.Get("read a user"); got != want["read a user"] {
		t.Errorf("Get returns %q", got)
	}
	if got, want := f.Of(7, "count"), "SELECT count(*) FROM badged.users_p07, badged.keys_p07_baseline"; got != want {
		t.Errorf("Of returns %q, want %q", got, want)
	}
}

func TestMistakesPanic(t *testing.T) {
	for name, use := range map[string]func(){
		"a statement without a name": func() { sqlfile.Parse("SELECT 1") },
		"an empty statement":         func() { sqlfile.Parse("-- name: a\n-- name: b\nSELECT 1") },
		"a name that occurs twice":   func() { sqlfile.Parse("-- name: a\nSELECT 1\n-- name: a\nSELECT 2") },
		"an unknown name":            func() { sqlfile.Parse("-- name: a\nSELECT 1").Of(0, "b") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("did not panic")
				}
			}()
			use()
		})
	}
}
