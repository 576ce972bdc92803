// Package accesstest lists which routes admit which keys and tokens. The list repeats what the code
// and its descriptions say: a test detects a mistake even if it is in both, and each new route
// needs an entry here.
package accesstest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/server/keyring"
)

// Right is a set of rights of a key, in bits. Tests try each route with an example about the user
// ada. The examples of events have the source chat, and those to rooms are about the room
// town-hall.
type Right int

// The rights.
const (
	Publish Right = 1 << iota // publish the examples of events that do not concern a room
	InRooms                   // publish the examples of events that change a room or reach its members
	// InAllRooms allows publishing events that may end memberships of any room.
	InAllRooms
	Read       // read the badge of ada
	ReadBen    // read the badge of ben
	Disconnect // disconnect ada
	Operate
)

// Token says which tokens of users a route admits.
type Token int

// The tokens.
const (
	NoToken    Token = iota
	OfTheUser        // a token of the user in the path
	OfAllKinds       // a token of the user in the path that is not restricted to categories
	OfAnyUser        // a token of any user: the route is about this user
)

// Route says which keys and tokens a route admits.
type Route struct {
	Kinds  []keyring.Kind
	Rights Right
	Token  Token
	// Open is true if the route needs no key or token.
	Open bool
	// Internal is true if the route is not on the public listener when there is a separate listener
	// for operators.
	Internal bool
}

// Routes returns all routes, by method and path.
func Routes() map[string]Route {
	publishers, all := []keyring.Kind{keyring.Publisher, keyring.Admin}, []keyring.Kind{keyring.Publisher, keyring.Reader, keyring.Admin}
	reads := Route{Kinds: all, Rights: Read, Token: OfTheUser}
	owns := Route{Kinds: publishers, Rights: Read, Token: OfAllKinds}
	operates := Route{Kinds: []keyring.Kind{keyring.Admin}, Rights: Operate, Internal: true}
	follows := Route{Token: OfAnyUser}
	open := Route{Open: true, Internal: true}
	return map[string]Route{
		"POST /v1/events":                          {Kinds: publishers, Rights: Publish},
		"GET /v1/users/{user}/badge":               reads,
		"GET /v1/users/{user}/conversations":       reads,
		"GET /v1/users/{user}/categories":          reads,
		"POST /v1/badges/query":                    {Kinds: all, Rights: Read | ReadBen},
		"POST /v1/users/{user}/disconnect":         {Kinds: publishers, Rights: Disconnect},
		"PUT /v1/users/{user}/devices/{device}":    owns,
		"GET /v1/users/{user}/devices/{device}":    owns,
		"DELETE /v1/users/{user}/devices/{device}": owns,
		"GET /v1/users/{user}/devices":             owns,

		"GET /admin/v1/users/{user}/devices":    operates,
		"GET /admin/v1/users/{user}/explain":    operates,
		"GET /admin/v1/users/{user}/export":     operates,
		"POST /admin/v1/users/{user}/erase":     operates,
		"POST /admin/v1/users/{user}/merge":     operates,
		"GET /admin/v1/partitions":              operates,
		"GET /admin/v1/processes":               operates,
		"GET /admin/v1/rates":                   operates,
		"GET /admin/v1/deadletters":             operates,
		"POST /admin/v1/deadletters/{id}/retry": operates,
		"DELETE /admin/v1/deadletters/{id}":     operates,
		"GET /admin/v1/audit":                   operates,
		"GET /admin/v1/rebuilds":                operates,
		"POST /admin/v1/rebuilds":               operates,
		"GET /admin/v1/rebuilds/{id}":           operates,
		"DELETE /admin/v1/rebuilds/{id}":        operates,
		"GET /admin/v1/verifications":           operates,
		"POST /admin/v1/verifications":          operates,
		"GET /admin/v1/verifications/{id}":      operates,
		"DELETE /admin/v1/verifications/{id}":   operates,
		"GET /admin/v1/webhooks":                operates,
		"GET /admin/v1/webhooks/{name}":         operates,
		"PUT /admin/v1/webhooks/{name}":         operates,
		"DELETE /admin/v1/webhooks/{name}":      operates,
		"POST /admin/v1/webhooks/{name}/test":   operates,

		"GET /v1/ws":        follows,
		"GET /v1/sse":       follows,
		"POST /v1/commands": follows,

		"GET /debug/pprof/":          operates,
		"GET /debug/pprof/{profile}": operates,

		"GET /livez":         {Open: true},
		"GET /readyz":        open,
		"GET /metrics":       open,
		"GET /openapi.json":  open,
		"GET /asyncapi.json": open,
	}
}

// Key is a key in a key file. Its secret equals its name.
type Key struct {
	Name   string
	Kind   keyring.Kind
	Fields string // further fields of its entry, after name, kind and secret
	Rights Right
	// Expired is true if the key has expired, so that it has no rights.
	Expired bool
}

// ToPublish returns the right that is needed to publish an event of a type. A type that is not
// listed here counts as a type of rooms.
func ToPublish(t events.Type) Right {
	switch t {
	case events.MessageDelivered, events.MessageChanged, events.MessageRecalled, events.ConversationRead, events.ConversationMarkedUnread, events.ConversationReset,
		events.ConversationLevelSet, events.ConversationLeft, events.UserReadAll, events.ConversationSeen, events.UserSeenAll, events.CategoryLevelSet:
		return Publish
	case events.UserLeftAll:
		return InAllRooms
	}
	return InRooms
}

const (
	publishes = Publish | InRooms | InAllRooms
	// everything has the rights of admin keys, and of publisher keys without restrictions, except
	// Operate.
	everything = publishes | Read | ReadBen | Disconnect
)

// Keys returns keys of every kind and with every restriction.
func Keys() []Key {
	const ended = ", expires: 2020-01-31T00:00:00Z"
	return []Key{
		{Name: "publisher", Kind: keyring.Publisher, Rights: publishes},
		{Name: "reading", Kind: keyring.Publisher, Fields: ", read: yes", Rights: publishes | Read | ReadBen},
		{Name: "disconnecting", Kind: keyring.Publisher, Fields: ", disconnect: yes", Rights: publishes | Disconnect},
		{Name: "disconnecting-others", Kind: keyring.Publisher, Fields: ", disconnect: yes, users: [b*]"},
		{Name: "own-source", Kind: keyring.Publisher, Fields: ", sources: [chat]", Rights: publishes},
		{Name: "other-source", Kind: keyring.Publisher, Fields: ", sources: [crm, crm/*], read: yes, disconnect: yes", Rights: Read | ReadBen | Disconnect},
		{Name: "own-type", Kind: keyring.Publisher, Fields: ", types: [message.*, conversation.*, user.*, category.*]", Rights: Publish | InAllRooms},
		{Name: "other-type", Kind: keyring.Publisher, Fields: ", types: [room.*], read: yes", Rights: InRooms | Read | ReadBen},
		{Name: "own-users", Kind: keyring.Publisher, Fields: ", users: [ad*, ben, chloe], read: yes, disconnect: yes", Rights: everything &^ (InRooms | InAllRooms)},
		{Name: "own-users-and-room", Kind: keyring.Publisher, Fields: ", users: [ad*, ben, chloe], rooms: town-*, read: yes, disconnect: yes", Rights: everything &^ InAllRooms},
		{Name: "own-room", Kind: keyring.Publisher, Fields: ", rooms: [town-hall]", Rights: publishes &^ InAllRooms},
		{Name: "other-rooms", Kind: keyring.Publisher, Fields: ", rooms: [town, hall*]", Rights: Publish},
		{Name: "own-users-in-other-rooms", Kind: keyring.Publisher, Fields: ", users: [ada, ben, chloe], rooms: [Town-Hall]", Rights: Publish},
		{Name: "other-users", Kind: keyring.Publisher, Fields: ", users: [ad-*, be], read: yes, disconnect: yes"},
		{Name: "slow", Kind: keyring.Publisher, Fields: ", rate: 0.1", Rights: publishes},
		{Name: "small", Kind: keyring.Publisher, Fields: ", quota: 2", Rights: publishes},
		{Name: "reader", Kind: keyring.Reader, Rights: Read | ReadBen},
		{Name: "reader-of-own", Kind: keyring.Reader, Fields: ", users: [a*, ben]", Rights: Read | ReadBen},
		{Name: "reader-of-ada", Kind: keyring.Reader, Fields: ", users: [ada]", Rights: Read},
		{Name: "reader-of-others", Kind: keyring.Reader, Fields: ", users: [b*]", Rights: ReadBen},
		{Name: "admin", Kind: keyring.Admin, Rights: everything | Operate},
		{Name: "old-publisher", Kind: keyring.Publisher, Fields: ended, Expired: true},
		{Name: "old-reader", Kind: keyring.Reader, Fields: ended, Expired: true},
		{Name: "old-admin", Kind: keyring.Admin, Fields: ended, Expired: true},
	}
}

// File returns the text of a key file with the given keys.
func File(keys ...Key) string {
	var text strings.Builder
	text.WriteString("keys:\n")
	for _, k := range keys {
		fmt.Fprintf(&text, "- {name: %s, kind: %s, secret: %s%s}\n", k.Name, k.Kind, keyring.Hash(k.Name), k.Fields)
	}
	return text.String()
}

// Admits reports whether the route admits a key.
func (r Route) Admits(k Key) bool {
	return r.Open || !k.Expired && slices.Contains(r.Kinds, k.Kind) && k.Rights&r.Rights == r.Rights
}

// Unlimited returns the keys that are given by flags. They have all rights of their kind.
func Unlimited(publisher, admin string) []Key {
	return []Key{
		{Name: publisher, Kind: keyring.Publisher, Rights: everything},
		{Name: admin, Kind: keyring.Admin, Rights: everything | Operate},
	}
}
