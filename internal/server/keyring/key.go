// Package keyring has the API keys of publishers, readers and admins. A key has rights, limits
// and an expiry. Keys are read from flags, and from a file that may change while the process
// runs.
//
// It does not know routes: handlers call it to check what a key may do. ADR 68 has the reasons.
package keyring

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/events"
)

// Kind is the role of a key.
type Kind string

// The kinds.
const (
	Publisher Kind = "publisher" // publishes, and reads badges if allowed
	Reader    Kind = "reader"    // reads badges only
	Admin     Kind = "admin"     // does everything
)

// Reason is the reason why a request with a key was refused, as a metric label.
type Reason string

// The reasons.
const (
	WrongKind       Reason = "kind"
	Expired         Reason = "expired"
	Removed         Reason = "removed"
	WrongSource     Reason = "source"
	WrongType       Reason = "type"
	WrongUser       Reason = "user"
	WrongRoom       Reason = "room"
	NoReading       Reason = "read"
	NoDisconnecting Reason = "disconnect"
	OverRate        Reason = "rate"
	OverQuota       Reason = "quota"
)

// Key is an API key. It is safe for concurrent use.
type Key struct {
	Name string
	Kind Kind

	digest [sha256.Size]byte
	// expires is when the key expires; zero for never.
	expires time.Time
	// sources, types and users limit which events the key may publish. users also limits whose
	// badges the key may read, and which users it may disconnect. Nil means no limit.
	sources, types, users patterns
	// rooms limits the rooms to which the key may publish. If both rooms and users are nil, the
	// key may publish to every room. If rooms is nil and users is set, the key may not publish
	// to any room, since members of a room other than these users would get the event.
	rooms patterns
	// reads is true if the key may read badges.
	reads bool
	// disconnects is true if the key may disconnect users and revoke their tokens.
	disconnects bool
	// rate is in events per second, quota in events per day of UTC. 0 means no limit.
	rate  float64
	quota int64
	// usage has the counters of the key. When the file is loaded again, the new Key with the
	// same kind and name gets the same usage, so a reload does not reset counters.
	usage *usage
	now   func() time.Time
}

// patterns is a list of patterns. A pattern is a prefix if it ends with an asterisk, otherwise
// an exact text.
type patterns []string

// match reports whether a text matches a pattern. Nil patterns match every text.
func (ps patterns) match(text string) bool {
	return ps == nil || slices.ContainsFunc(ps, func(p string) bool {
		prefix, isPrefix := strings.CutSuffix(p, "*")
		return text == p || isPrefix && strings.HasPrefix(text, prefix)
	})
}

func (ps patterns) String() string { return strings.Join(ps, ", ") }

// Hash returns the form in which a secret is configured: sha256:HEX.
func Hash(secret string) string {
	digest := sha256.Sum256([]byte(secret))
	return digestPrefix + hex.EncodeToString(digest[:])
}

const digestPrefix = "sha256:"

// parseDigest parses the hexadecimal digits after sha256:.
func parseDigest(digits string) (digest [sha256.Size]byte, ok bool) {
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != sha256.Size {
		return digest, false
	}
	return [sha256.Size]byte(b), true
}

// hasExpired reports whether the key has expired.
func (k *Key) hasExpired() bool { return !k.expires.IsZero() && !k.now().Before(k.expires) }

// DeniedError reports that a key does not permit an action. Its text may be shown to clients.
type DeniedError struct {
	Reason  Reason
	Message string
}

// Error implements error.
func (e *DeniedError) Error() string { return e.Message }

// deny counts a refusal and returns its error.
func (k *Key) deny(reason Reason, format string, args ...any) error {
	k.usage.refuse(reason)
	return &DeniedError{reason, fmt.Sprintf("the key %s %s", k.Name, fmt.Sprintf(format, args...))}
}

// CheckKind fails with a *DeniedError unless the kind of the key is one of kinds. act names the
// refused action for the text of the error.
func (k *Key) CheckKind(act string, kinds ...Kind) error {
	if slices.Contains(kinds, k.Kind) {
		return nil
	}
	article := "a"
	if k.Kind == Admin {
		article = "an"
	}
	return k.deny(WrongKind, "is %s %s's, and may not %s", article, k.Kind, act)
}

// CheckRead fails with a *DeniedError if the key may not read the badge of one of these users.
func (k *Key) CheckRead(userIDs ...string) error {
	if !k.reads {
		return k.deny(NoReading, "may not read badges: it has no read: yes")
	}
	if k.users == nil {
		return nil
	}
	for _, id := range userIDs {
		if !k.users.match(id) {
			return k.deny(WrongUser, "may not read the badge of %q: its users are %s", id, k.users)
		}
	}
	return nil
}

// CheckDisconnect fails with a *DeniedError if the key may not disconnect a user.
func (k *Key) CheckDisconnect(userID string) error {
	switch {
	case !k.disconnects:
		return k.deny(NoDisconnecting, "may not disconnect users: it has no disconnect: yes")
	case !k.users.match(userID):
		return k.deny(WrongUser, "may not disconnect %q: its users are %s", userID, k.users)
	}
	return nil
}

// maxFields is the maximum number of wrong fields of one event that an error lists. When the list
// has this number of fields, the remaining users of the event are not checked.
const maxFields = 20

// CheckEvents checks whether the key may publish events. For each event that the key may not
// publish, it returns an error with the wrong fields, but it returns at most `limit` errors. It
// returns nil if the key may publish all events.
func (k *Key) CheckEvents(evs []events.Event, limit int) []events.IndexedError {
	if k.sources == nil && k.types == nil && k.users == nil && k.rooms == nil {
		return nil
	}
	var refused []events.IndexedError
	var first Reason
	for i := range evs {
		fields, reason := k.checkEvent(&evs[i])
		if len(fields) == 0 {
			continue
		}
		if first == "" {
			first = reason
		}
		refused = append(refused, events.IndexedError{Index: i, Err: &events.InvalidError{Fields: fields}})
		if len(refused) == limit {
			break
		}
	}
	if first != "" {
		k.usage.refuse(first)
	}
	return refused
}

// checkEvent returns the fields of an event because of which the key may not publish the event, and
// the reason for the first of these fields. It returns no fields if the key may publish the event.
func (k *Key) checkEvent(e *events.Event) (fields []events.FieldError, first Reason) {
	refuse := func(reason Reason, field, format string, args ...any) {
		if first == "" {
			first = reason
		}
		fields = append(fields, events.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if !k.sources.match(e.Source) {
		refuse(WrongSource, "source", "%q is not a source of the key %s, which has %s", e.Source, k.Name, k.sources)
	}
	if !k.types.match(string(e.Type)) {
		refuse(WrongType, "type", "%q is not a type of the key %s, which has %s", e.Type, k.Name, k.types)
	}
	if room := e.Data.ConversationID; e.ReachesRoom() {
		switch {
		case !k.rooms.match(room):
			refuse(WrongRoom, "data.conversation_id", "%q is not a room of the key %s, which has %s", room, k.Name, k.rooms)
		case k.rooms == nil && k.users != nil:
			refuse(WrongRoom, "type", "%q concerns all members of a room, and the key %s, which is for the users %s, has no rooms", e.Type, k.Name, k.users)
		}
	}
	if e.Type == events.UserLeftAll && (k.rooms != nil || k.users != nil) {
		refuse(WrongRoom, "type", "%q leaves rooms that it does not name, and the key %s is limited to rooms or users: publish room.left", e.Type, k.Name)
	}
	if k.users == nil {
		return fields, first
	}
	for i, id := range e.Data.UserIDs {
		if len(fields) == maxFields {
			break
		}
		if !k.users.match(id) {
			refuse(WrongUser, fmt.Sprintf("data.user_ids[%d]", i), "%q is not a user of the key %s, which has %s", id, k.Name, k.users)
		}
	}
	return fields, first
}
