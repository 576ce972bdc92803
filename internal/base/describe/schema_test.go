package describe

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

type page struct {
	Items  []item           `json:"items" doc:"What there is."`
	Labels map[string]int64 `json:"labels"`
	Next   string           `json:"next,omitempty" maxLength:"8"`
	hidden string
}

type item struct {
	common
	At    time.Time       `json:"at,omitzero"`
	Kind  string          `json:"kind" enum:"a,b"`
	ID    json.RawMessage `json:"id" type:"number,string"`
	Names []string        `json:"names" minItems:"1" maxLength:"9"`
	Skip  int             `json:"-"`
}

type common struct {
	N *int64 `json:"n,omitempty" minimum:"1"`
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSchemaMatchesTheEncoding(t *testing.T) {
	s := NewSchemas("#/")
	if got := marshal(t, s.Of(page{hidden: ""})); got != `{"$ref":"#/Page"}` {
		t.Errorf("a struct with a name is %s", got)
	}
	want := strings.Join([]string{
		`{"Page":{"type":"object","properties":{`,
		`"items":{"type":"array","description":"What there is.","items":{"$ref":"#/Item"}},`,
		`"labels":{"type":"object","additionalProperties":{"type":"integer","format":"int64"}},`,
		`"next":{"type":"string","maxLength":8}},`,
		`"required":["items","labels"]},`,
		`"Item":{"type":"object","properties":{`,
		`"n":{"type":"integer","format":"int64","minimum":1},`,
		`"at":{"type":"string","format":"date-time"},`,
		`"kind":{"type":"string","enum":["a","b"]},`,
		`"id":{"type":["number","string"]},`,
		`"names":{"type":"array","minItems":1,"items":{"type":"string","maxLength":9}}},`,
		`"required":["kind","id","names"]}}`,
	}, "")
	if got := marshal(t, s.Named()); got != want {
		t.Errorf("the schemas are\n%s\nwant\n%s", got, want)
	}
	s.Closed(page{})
	if got := strings.Count(marshal(t, s.Named()), `"additionalProperties":false`); got != 2 {
		t.Errorf("%d schemas are closed, want both", got)
	}
}

func TestNamedTakesSomeFields(t *testing.T) {
	s := NewSchemas("#/")
	s.Of(OneOf{Name: "Any", By: "kind", Models: []any{
		Named{Name: "A", Doc: "An a.", Model: item{}, Required: []string{"kind"}, Optional: []string{"n"}, Consts: map[string]string{"kind": "a"}},
	}})
	want := `{"Any":{"oneOf":[{"$ref":"#/A"}],"discriminator":{"propertyName":"kind","mapping":{"a":"#/A"}}},` +
		`"A":{"type":"object","description":"An a.","properties":{"kind":{"const":"a"},"n":{"type":"integer","format":"int64","minimum":1}},"required":["kind"]}}`
	if got := marshal(t, s.Named()); got != want {
		t.Errorf("the schemas are\n%s\nwant\n%s", got, want)
	}
}

func TestNamesAreUnique(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "would be Page") {
			t.Errorf("got error %v", r)
		}
	}()
	s := NewSchemas("#/")
	s.Of(page{})
	s.Of(Named{Name: "Page", Model: item{}})
}
