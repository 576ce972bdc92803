package events_test

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
)

// nullCase is an event with nulls, and either an equal event without them or
// the expected error.
type nullCase struct {
	Name  string          `json:"name"`
	Event json.RawMessage `json:"event"`
	Is    json.RawMessage `json:"is"`
	Error string          `json:"error"`
}

func nullCases(t testing.TB) (cases []nullCase) {
	t.Helper()
	b, err := os.ReadFile("testdata/nulls.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// A null counts as absent, in the envelope and in data.
func TestDecodeTreatsNullAsAbsent(t *testing.T) {
	for _, tc := range nullCases(t) {
		t.Run(tc.Name, func(t *testing.T) {
			got, err := events.Decode(tc.Event)
			if tc.Error != "" {
				if want := "invalid event: " + tc.Error; err == nil || err.Error() != want {
					t.Errorf("%v, want %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := events.Decode(tc.Is)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-without null +with null):\n%s", diff)
			}
		})
	}
}

// SQL refuses the nulls that Go refuses, and otherwise writes the same rows as
// without them.
func TestPublishSQLTreatsNullAsAbsent(t *testing.T) {
	_, pool := newLog(t)
	for _, tc := range nullCases(t) {
		t.Run(tc.Name, func(t *testing.T) {
			for function, form := range map[string]struct{ argument, is string }{
				publishSQL:      {string(tc.Event), string(tc.Is)},
				publishBatchSQL: {"[" + string(tc.Event) + "]", "[" + string(tc.Is) + "]"},
			} {
				position, err := call(t.Context(), pool, function, form.argument)
				if tc.Error != "" {
					var want *events.InvalidError
					if _, err := events.Decode(tc.Event); !errors.As(err, &want) {
						t.Fatal(err)
					}
					if diff := cmp.Diff(fieldsIn(events.IndexedError{Err: want}), refusedFields(err)); diff != "" {
						t.Errorf("%s (-Go +SQL):\n%s", function, diff)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", function, err)
					continue
				}
				without, err := call(t.Context(), pool, function, form.is)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(rowsOf(t, pool, without), rowsOf(t, pool, position)); diff != "" {
					t.Errorf("%s (-without null +with null):\n%s", function, diff)
				}
			}
		})
	}
}
