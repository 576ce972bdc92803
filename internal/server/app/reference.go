package app

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/gateway"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/server/httpapi"
)

// Versions of the interfaces in the reference. A breaking change increases the version.
const (
	apiVersion    = "1"
	framesVersion = "1"
)

// api describes every route of a server with all roles.
func api() describe.API {
	all := httpapi.Routes()
	all = append(all, gatewayRoutes(new(gateway.Gateway), nil)...)
	all = append(all, operatorRoutes(new(obs.Health), nil, nil, nil)...)
	return describe.API{
		Title: "badged", Version: apiVersion,
		Doc: "Exact unread badges: publish what happened, read what is unread. Errors are RFC 9457 problems. " +
			"If a path is not a route, the answer is 404. If the route does not have the method, the answer is 405 with the header `Allow`. " +
			"Unknown parameters and fields of requests are errors. So is a body on a route that has none. " +
			"Exceptions are frames other than commands, since clients may be newer than the server, and the routes under Operate, since load balancers and scrapers may add parameters. " +
			"Later versions may add fields to answers: clients must ignore fields that they do not know.",
		Groups: []describe.Group{
			{Name: httpapi.GroupPublish, Doc: "For chat backends."},
			{Name: httpapi.GroupBadges, Doc: "For senders of push notifications, and for apps."},
			{Name: httpapi.GroupDevices, Doc: "For apps, and for operators."},
			{Name: httpapi.GroupTokens, Doc: "For chat backends, to disconnect users and revoke their tokens."},
			{Name: groupClients, Doc: "For apps. Only processes with the role gateway serve these routes."},
			{Name: httpapi.GroupAdmin, Doc: "For operators."},
			{Name: groupOperate, Doc: "For monitoring. Every process serves these routes."},
			{Name: httpapi.GroupProfiles, Doc: "For operators. Every process serves these routes, but only on a listener for operators: `--internal-listen` of `badged serve`, `--listen` of `badged ingest`, `badged relay` and `badged tail`."},
		},
		Access: []describe.Access{
			{Name: httpapi.PublisherAccess, Doc: "A key of `--publisher-keys`, which allows publishing, reading the badge of any user, and disconnecting users. Or a key of the kind `publisher` in `--keys-file`: the file may limit it to sources, types and users, and it allows reading and disconnecting only if the file says so."},
			{Name: httpapi.ReaderAccess, Doc: "A key of the kind `reader` in `--keys-file`, which allows reading badges. The file may limit it to some users."},
			{Name: httpapi.AdminAccess, Doc: "A key of `--admin-keys`, or a key of the kind `admin` in `--keys-file`. It allows everything."},
			userAccess(),
		},
		Routes: all,
	}
}

func userAccess() describe.Access {
	return describe.Access{Name: httpapi.UserAccess, Format: "JWT", Doc: "An access token of a user, signed with a key of `--jwt-keys` or `--jwks-url`. It allows connecting as this user, reading the user's badge, and registering the user's devices."}
}

// messaging describes the events in the log and the frames of clients.
func messaging() describe.Messaging {
	const (
		log     = "log"
		clients = "clients"
	)
	var published []describe.Message
	for _, t := range events.Types() {
		published = append(published, describe.Message{
			Name: describe.TypeName(string(t.Type)), Doc: t.Does, ContentType: "application/cloudevents+json",
			Model: httpapi.EventOf(t), Example: eventExample(t),
		})
	}
	fromServer, fromClients := messages(protocol.ServerFrames()), messages(protocol.ClientFrames())
	codes := make([]describe.Code, 0)
	for _, c := range protocol.CloseCodes() {
		codes = append(codes, describe.Code(c))
	}
	return describe.Messaging{
		Title: "badged", Version: framesVersion,
		Doc: "The events in the log, and the frames of the protocol `badge.v1`. Frames carry absolute state and a version: apply a changes frame only if its version is greater than the version of your state. " +
			"Ignore types and fields that you do not know. Requests are described in `/openapi.json`.",
		Servers: []describe.Server{
			{Name: clients, Host: "127.0.0.1:8080", Protocol: "ws", Doc: "A process with the role gateway.", Access: httpapi.UserAccess},
			{Name: log, Host: "127.0.0.1:5432", Protocol: "postgresql", Doc: "The database of badged."},
		},
		Access: []describe.Access{userAccess()},
		Channels: []describe.Channel{
			{
				Name: "websocket", Server: clients, Address: "/v1/ws",
				Doc:      "Text frames of the subprotocol `badge.v1`; each is one JSON object. A frame of a client has at most 4 KiB. A `hello` or `auth` frame may have 20 KiB, since its token may have 16 KiB. The first frame is `hello`; the server answers with a snapshot or changes.",
				Sends:    fromServer,
				Receives: fromClients,
				Codes:    codes,
			},
			{
				Name: "events", Server: clients, Address: "/v1/sse",
				Doc:   "Server-sent events. The `data` of each event is a frame. If the frame carries a state, the `id` of the event is `EPOCH:VERSION`. The server sends comments instead of pings. A client sends commands to `POST /v1/commands`.",
				Sends: messagesOf(fromServer, "snapshot", "changes", "bye"),
			},
			{
				Name: log, Server: log, Address: "badged.events_p{partition}",
				Doc:        "A partition of the log, which is a topic of watermill-sql. An event is stored once in each partition that has users of the event; there its `user_ids` lists only the users of the partition.",
				Sends:      published,
				Parameters: []describe.Param{{Name: "partition", Doc: "The number of the partition, with at least two digits.", Example: "03"}},
			},
		},
	}
}

// eventExample returns an example event of a type, as stored in the log.
func eventExample(t events.TypeInfo) string {
	e := t.Example
	e.Time = time.Date(2026, time.November, 21, 4, 11, 46, 0, time.UTC)
	b, err := e.MarshalJSON()
	if err != nil {
		panic(err) // the example is not UTF-8
	}
	return string(b)
}

func messages(frames []protocol.FrameInfo) []describe.Message {
	all := make([]describe.Message, len(frames))
	for i, f := range frames {
		all[i] = describe.Message{Name: describe.TypeName(f.T), Doc: f.Means, ContentType: "application/json", Model: describeFrame(f), Example: f.Example}
	}
	return all
}

// messagesOf selects the messages of the given types of frames.
func messagesOf(all []describe.Message, types ...string) []describe.Message {
	var some []describe.Message
	for _, t := range types {
		for _, m := range all {
			if m.Name == describe.TypeName(t) {
				some = append(some, m)
			}
		}
	}
	return some
}

func describeFrame(f protocol.FrameInfo) describe.Named {
	return describe.Named{
		Name: describe.TypeName(f.T) + "Frame", Doc: f.Means, Model: f.Of,
		Required: f.Required, Optional: f.Optional,
		Consts: map[string]string{"t": f.T},
	}
}

// command describes the frames that POST /v1/commands accepts, with one model for each type.
func command() describe.OneOf {
	all := describe.OneOf{Name: "Command", By: "t", Doc: "A command: a frame that says what the user did."}
	for _, f := range protocol.ClientFrames() {
		if f.Command {
			all.Models = append(all.Models, describeFrame(f))
		}
	}
	return all
}

// okFrame describes the answer to a command.
func okFrame() describe.Named {
	for _, f := range protocol.ServerFrames() {
		if f.T == "ok" {
			return describeFrame(f)
		}
	}
	panic("app: there is no ok frame")
}

// descriptions returns /openapi.json and /asyncapi.json.
func descriptions() (openAPI, asyncAPI []byte, err error) {
	if openAPI, err = describe.OpenAPI(api()); err != nil {
		return nil, nil, fmt.Errorf("describe the API: %w", err)
	}
	if asyncAPI, err = describe.AsyncAPI(messaging()); err != nil {
		return nil, nil, fmt.Errorf("describe the frames: %w", err)
	}
	return openAPI, asyncAPI, nil
}

// description returns a handler that serves body as JSON.
func description(body []byte) http.Handler {
	line := append(slices.Clone(body), '\n')
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(line) // a failure means that the client has disconnected
	})
}
