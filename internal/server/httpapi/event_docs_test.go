package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/server/httpapi"
)

// The fields of a type are described as they are for it: a description names no other type,
// and those of a type are of fields that it has.
func TestFieldsAreDescribedByType(t *testing.T) {
	for _, info := range events.Types() {
		schemas := describe.NewSchemas("#/components/schemas/")
		schemas.Of(httpapi.EventDataOf(info))
		text, err := json.Marshal(schemas.Named())
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range events.Types() {
			if strings.Contains(string(text), string(other.Type)) {
				t.Errorf("the fields of %s are described with %s: %s", info.Type, other.Type, text)
			}
		}
		for field, meaning := range info.Means {
			if !strings.Contains(string(text), meaning) {
				t.Errorf("%s has no field %s that is described so: %s", info.Type, field, meaning)
			}
		}
	}
}
