package httpapi

import (
	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
)

// Event describes the events that publishers may send, with one schema for each type.
func Event() describe.OneOf {
	all := describe.OneOf{
		Name: "Event", By: "type",
		Doc: "A CloudEvents 1.0 event. An optional attribute that is null counts as absent; unknown attributes and fields are refused.",
	}
	for _, t := range events.Types() {
		if !t.Reserved {
			all.Models = append(all.Models, EventOf(t))
		}
	}
	return all
}

// EventOf describes the events of a type.
func EventOf(t events.TypeInfo) describe.Named {
	return describe.Named{
		Name: describe.TypeName(string(t.Type)), Doc: t.Does, Model: events.Envelope{},
		Consts: map[string]string{"specversion": events.SpecVersion, "type": string(t.Type)},
		Fields: map[string]any{"data": EventDataOf(t)},
	}
}

// EventDataOf describes the data of the events of a type.
func EventDataOf(t events.TypeInfo) describe.Named {
	return describe.Named{
		Name: describe.TypeName(string(t.Type)) + "Data", Model: events.Data{},
		Required: t.Required, Optional: t.Optional, Docs: t.Means,
	}
}
