package app

import (
	"fmt"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/conformance"
	"github.com/badged/badged/internal/devtest/refpages"
	"github.com/badged/badged/internal/server/httpapi"
)

// reference returns the files of docs/reference, by name.
func reference() (map[string][]byte, error) {
	openAPI, asyncAPI, err := descriptions()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"http.md":        httpPage(),
		"frames.md":      framesPage(),
		"events.md":      eventsPage(),
		"conformance.md": conformancePage(),
		"openapi.json":   append(openAPI, '\n'),
		"asyncapi.json":  append(asyncAPI, '\n'),
	}, nil
}

func httpPage() []byte {
	a := api()
	p := refpages.NewPage("Reference: HTTP", a.Doc+"\n\n"+
		"[HTTP API](../http-api.md) explains how to use it. The machine-readable form is [OpenAPI 3.1](openapi.json), which every process serves as `GET /openapi.json`.")
	p.Heading(2, "Access")
	p.Text("Give a key or a token in `Authorization: Bearer …`.")
	var rows [][]string
	for _, access := range a.Access {
		rows = append(rows, []string{"`" + access.Name + "`", access.Doc})
	}
	p.Table([]string{"access", "meaning"}, rows...)
	p.Heading(2, "Routes")
	p.Elsewhere(httpapi.Event(), "events.md")
	p.Elsewhere(command(), "frames.md#from-the-client")
	p.Elsewhere(okFrame(), "frames.md#ok")
	p.Routes(a)
	return p.Bytes()
}

func framesPage() []byte {
	p := refpages.NewPage("Reference: frames", "The frames of the WebSocket protocol `badge.v1`, which server-sent events and `POST /v1/commands` carry too. "+
		"[Clients](../clients.md) explains how to use them; the [golden files](../../web/sdk/testdata/frames) are more examples. "+
		"The machine-readable form is [AsyncAPI 3.0](asyncapi.json), which every process serves as `GET /asyncapi.json`.")
	for _, way := range []struct {
		heading string
		frames  []protocol.FrameInfo
	}{{"From the server", protocol.ServerFrames()}, {"From the client", protocol.ClientFrames()}} {
		p.Heading(2, way.heading)
		for _, f := range way.frames {
			p.Heading(3, "`"+f.T+"`")
			p.Text(f.Means)
			p.Fields(describeFrame(f))
			p.Example(f.Example)
		}
	}
	p.Types()
	p.Heading(2, "Error codes")
	var rows [][]string
	for _, c := range protocol.ErrorCodes() {
		rows = append(rows, []string{"`" + c.Name + "`", c.Means, c.Then})
	}
	p.Table([]string{"code", "means", "then"}, rows...)
	p.Heading(2, "Close codes")
	rows = nil
	for _, c := range protocol.CloseCodes() {
		rows = append(rows, []string{fmt.Sprint(c.Code), c.Name, c.Means, c.Then})
	}
	p.Table([]string{"code", "name", "means", "then"}, rows...)
	return p.Bytes()
}

func eventsPage() []byte {
	p := refpages.NewPage("Reference: events", "The events that publishers send and the log stores. [Publishing](../publishing.md) explains how to publish them. "+
		"The machine-readable forms are [AsyncAPI 3.0](asyncapi.json) and the [OpenAPI 3.1](openapi.json) of `POST /v1/events`.")
	p.Heading(2, "The envelope")
	p.Fields(describe.Named{
		Name: "Envelope", Model: events.Envelope{},
		Fields: map[string]any{
			"specversion": &describe.Schema{Const: events.SpecVersion},
			"data":        &describe.Schema{Type: []string{"object"}, Description: "What happened: the fields of the type, below."},
		},
	})
	for _, t := range events.Types() {
		p.Heading(2, "`"+string(t.Type)+"`")
		text := t.Does
		if t.Reserved {
			text += " Only badged writes it; publishing it is refused."
		}
		p.Text(text)
		p.Fields(httpapi.EventDataOf(t))
		p.Example(eventExample(t))
	}
	p.Heading(2, "Notification")
	p.Fields(events.Notification{})
	return p.Bytes()
}

func conformancePage() []byte {
	p := refpages.NewPage("Reference: scenarios", "What `badged conformance` plays. [Checking a client](../conformance.md) explains how to run it.")
	sockets, streams := conformance.Scenarios(conformance.WebSockets), conformance.Scenarios(conformance.ServerSentEvents)
	var rows [][]string
	for _, s := range sockets {
		over := "WebSockets"
		if slices.Contains(streams, s) {
			over = "both"
		}
		rows = append(rows, []string{"`" + s.Name + "`", over, s.Story})
	}
	for _, s := range streams {
		if !slices.Contains(sockets, s) {
			rows = append(rows, []string{"`" + s.Name + "`", "streams", s.Story})
		}
	}
	p.Table([]string{"name", "over", "what the client does"}, rows...)
	return p.Bytes()
}
