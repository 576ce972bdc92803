// Package protocol defines and describes the frames of badge.v1, the protocol between gateways
// and clients.
//
// It does not know sessions or connections. ADR 3 explains why a command with unknown fields is
// rejected.
package protocol

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/badged/badged/pubsub"
)

// Subprotocol is the WebSocket subprotocol of the gateway.
const Subprotocol = "badge.v1"

// ProblemType is the type of the problem (RFC 9457) in the answer to a refused stream or
// command over HTTP. It shows the client that the answer comes from badged and not from a proxy.
const ProblemType = "urn:badged:problem"

const (
	// MaxFrameBytes is the maximum size in bytes of a client's frame without a token.
	MaxFrameBytes = 4096
	// MaxTokenBytes is the maximum size of a token in bytes, in a frame or a header.
	MaxTokenBytes = 16 << 10
	// MaxTokenFrameBytes is the maximum size of a hello or auth frame in bytes.
	MaxTokenFrameBytes = MaxTokenBytes + MaxFrameBytes
)

// The types of client frames, as in the field t.
const (
	FrameHello      = "hello"
	FrameRead       = "read"
	FrameReadAll    = "read_all"
	FrameMarkUnread = "mark_unread"
	FrameSeen       = "seen"
	FrameSeenAll    = "seen_all"
	FrameLevel      = "level"
	FrameAuth       = "auth"
	FramePing       = "ping"
	FramePong       = "pong"
)

// ClientFrame is any frame of a client: it has the fields of all types.
type ClientFrame struct {
	T              string          `json:"t" doc:"The type of the frame."`
	ID             json.RawMessage `json:"id" type:"number,string" doc:"An id that the answer repeats; at most 128 bytes. If the id is a UUID, a command that is sent again with it, also over another connection, takes effect once."`
	Token          string          `json:"token" minLength:"1" doc:"An access token of the user, a JWT."`
	Epoch          string          `json:"epoch" doc:"The epoch of the state that the client has."`
	Version        int64           `json:"version" minimum:"0" doc:"The version of the state that the client has."`
	Device         string          `json:"device" minLength:"1" maxLength:"128" doc:"The id of the device that the app has registered for pushes. Give it only while the app is in the foreground: badged then sends the device no pushes until the connection ends, and delivers the delayed pushes afterwards."`
	ConversationID string          `json:"conversation_id" minLength:"1" maxLength:"128" doc:"The conversation."`
	UpToSeq        int64           `json:"up_to_seq" minimum:"1" doc:"The seq of the last message that the user has read, or seen. In each command, a seq may also be a string of its digits."`
	Seqs           []int64         `json:"seqs" minItems:"1" maxItems:"1000" minimum:"1" doc:"The seqs of messages that the user has read and that count as unread again."`
	FromSeq        *int64          `json:"from_seq" minimum:"1" doc:"The seq of a message in a room: this message and all later messages count as unread again."`
	Category       *string         `json:"category" minLength:"1" maxLength:"255" doc:"The category. It covers its own conversations, and the conversations of all categories whose name begins with it and a slash."`
	Level          string          `json:"level" enum:"default,all,mentions,direct_mentions,none" doc:"What the conversations that the category covers add to the total; default removes the level of the category."`
}

// maxIDBytes is the maximum size in bytes of a frame's id. It is limited because answers repeat
// the id. Quotes and escapes do not count.
const maxIDBytes = 128

// ErrNotObject is returned for a frame that is not a JSON object. Such a frame has no id, so no
// answer can refer to it.
var ErrNotObject = errors.New("frame is not a JSON object")

// DecodeFrame decodes a frame of a client. Its errors may be shown to the client. Unless the
// error is [ErrNotObject], an answer can refer to the frame: if the client gave a valid id, the
// returned frame has this id, also after an error.
//
// A command may have only the fields of its type, each at most once and not null. If badged
// ignored a field, such as the category of a read_all, the command could do more than the
// client wants. In frames that are not commands, unknown fields are ignored, so that newer
// clients can use older servers.
func DecodeFrame(b []byte) (ClientFrame, error) {
	members, err := membersOf(b)
	if err != nil {
		return ClientFrame{}, ErrNotObject
	}
	var f ClientFrame
	invalid := f.take(members)
	if err := checkID(f.ID); err != nil {
		f.ID = nil
		return f, err
	}
	switch {
	case invalid != nil: // the other fields are decoded nevertheless
		return f, invalid
	case f.T == "":
		return f, errors.New("frame has no type t")
	case len(b) > MaxFrameBytes && f.T != FrameHello && f.T != FrameAuth:
		return f, fmt.Errorf("frame has %d bytes; at most %d are allowed", len(b), MaxFrameBytes)
	}
	return f, checkMembers(f.T, members)
}

// member is a field of a JSON object: its name and value.
type member struct {
	name  string
	value jsontext.Value
}

// membersOf returns the members of a JSON object in their order. If several members have the
// same name, it returns all of them. The members may have invalid UTF-8.
func membersOf(b []byte) ([]member, error) {
	d := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var members []member
	if begin, err := d.ReadToken(); err != nil || begin.Kind() != jsontext.KindBeginObject {
		return nil, ErrNotObject
	}
	for d.PeekKind() != jsontext.KindEndObject {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String()} // copied, since the next read reuses the memory of name
		value, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		m.value = value.Clone()
		members = append(members, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, ErrNotObject
	}
	return members, nil
}

// fields returns pointers to the fields, by JSON name.
func (f *ClientFrame) fields() map[string]any {
	return map[string]any{
		"t": &f.T, "id": &f.ID, "token": &f.Token, "epoch": &f.Epoch, "version": &f.Version, "device": &f.Device,
		"conversation_id": &f.ConversationID, "up_to_seq": &f.UpToSeq, "seqs": &f.Seqs, "from_seq": &f.FromSeq, "category": &f.Category, "level": &f.Level,
	}
}

// seqFields are the fields with seqs. JavaScript rounds numbers above 2⁵³, so a seq may be a number
// or a string of digits, as in events.
var (
	seqFields    = []string{"up_to_seq", "seqs", "from_seq"}
	quotedDigits = regexp.MustCompile(`"([1-9][0-9]*)"`)
)

// take sets the fields of f from members. It returns an error for the first member with a value
// of the wrong type, or with text that is not valid Unicode. take compares names exactly, unlike
// encoding/json, which would accept "Category" for "category".
func (f *ClientFrame) take(members []member) (invalid error) {
	fields := f.fields()
	for _, m := range members {
		field, known := fields[m.name]
		if !known {
			continue
		}
		if !m.value.IsValid(jsontext.AllowDuplicateNames(true)) { // encoding/json would decode it to U+FFFD, and so to another id
			invalid = cmp.Or(invalid, fmt.Errorf("field %s must be UTF-8, without halves of surrogate pairs", m.name))
			continue
		}
		value, hasSeqs := []byte(m.value), slices.Contains(seqFields, m.name)
		if hasSeqs {
			value = quotedDigits.ReplaceAll(value, []byte("$1"))
		}
		typ, wrong := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(value, field))
		switch {
		case wrong && hasSeqs:
			invalid = cmp.Or(invalid, fmt.Errorf("field %s: a seq must be a whole number from 1 to %d, or its digits in a string; the field is %.40s", m.name, int64(math.MaxInt64), m.value))
		case wrong:
			invalid = cmp.Or(invalid, fmt.Errorf("field %s must not be a JSON %s", m.name, typ.Value))
		}
	}
	return invalid
}

// checkMembers returns an error if a command has an unknown, repeated or null member, or lacks a
// required one.
func checkMembers(command string, members []member) error {
	info := slices.IndexFunc(ClientFrames(), func(i FrameInfo) bool { return i.T == command && i.Command })
	if info < 0 {
		return nil
	}
	fields := slices.Concat(ClientFrames()[info].Required, ClientFrames()[info].Optional)
	given := map[string]bool{}
	for _, m := range members {
		switch {
		case !slices.Contains(fields, m.name):
			return fmt.Errorf("%s has no field %.40q: it may have %s", command, m.name, strings.Join(fields, ", "))
		case given[m.name]:
			return fmt.Errorf("field %s is given twice", m.name)
		case m.value.Kind() == jsontext.KindNull:
			return fmt.Errorf("field %s must not be null: leave out what you do not give", m.name)
		}
		given[m.name] = true
	}
	for _, field := range ClientFrames()[info].Required {
		if !given[field] {
			return fmt.Errorf("%s needs the field %s", command, field)
		}
	}
	return nil
}

// checkID returns an error if an id cannot be repeated in an answer.
func checkID(id json.RawMessage) error {
	text := []byte(id)
	switch kind := jsontext.Value(id).Kind(); {
	case kind == jsontext.KindString:
		text, _ = jsontext.AppendUnquote(nil, id) // cannot fail, since take has checked the value
	case len(id) > 0 && kind != jsontext.KindNumber:
		return errors.New("id must be a number or a string")
	}
	if len(text) > maxIDBytes {
		return fmt.Errorf("id has more than %d bytes", maxIDBytes)
	}
	return nil
}

// Key returns the idempotency key of a command: its id in canonical form if the id is a UUID,
// else "". An id that is not a UUID is unique only within one connection.
func (f *ClientFrame) Key() string {
	const uuidBytes = 36 // in the form with hyphens, without braces
	var s string
	if json.Unmarshal(f.ID, &s) != nil || len(s) != uuidBytes {
		return ""
	}
	id, err := uuid.Parse(s)
	if err != nil {
		return ""
	}
	return id.String()
}

// StateFrame is the common part of snapshots and changes.
type StateFrame struct {
	T       string `json:"t" doc:"The type of the frame."`
	Epoch   string `json:"epoch" doc:"The epoch of the version. Versions of different epochs cannot be compared."`
	Version int64  `json:"version" minimum:"0" doc:"The version of this state. Apply a changes frame only if this version is greater than the version of your state."`
	pubsub.Numbers
	Categories map[string]pubsub.Numbers `json:"categories" doc:"The numbers of each category that has a number above 0, and of the categories above it; only the first 500 by name. In changes without all_categories: the new numbers of the categories that changed. Remove a category if all its numbers are 0."`
	// MoreCategories is [pubsub.Badge].MoreCategories.
	MoreCategories bool                  `json:"more_categories,omitempty" doc:"True if the user has more categories than the frame lists; absent otherwise. Also absent in changes without all_categories."`
	AllCategories  bool                  `json:"all_categories,omitempty" doc:"Only in changes: true if categories and levels are complete, as in a snapshot. Then replace all your categories and levels with them."`
	Levels         map[string]string     `json:"levels,omitzero" doc:"The level of each category that has one. In a snapshot and in changes with all_categories, absent if no category has a level. In other changes, absent if no level changed."`
	Conversations  []pubsub.Conversation `json:"conversations" doc:"In a snapshot: the conversations with unread messages, a mark, or a level of their own, at most 500. In changes: every conversation that changed, even if it has no unread messages. The most recently changed conversation comes first. In a snapshot only the user's own changes in a room, such as a read, decide its place."`
}

// Position returns the state that a client has after the frame, as EPOCH:VERSION.
func (f StateFrame) Position() string { return f.Epoch + ":" + strconv.FormatInt(f.Version, 10) }

// SnapshotFrame is the whole state of the user.
type SnapshotFrame struct {
	StateFrame
	More bool `json:"more" doc:"Whether the user has more conversations of this kind than the frame lists."`
	Terms
}

// ResumedFrame answers the hello of a client that already has a state. It contains the changes
// since that state.
type ResumedFrame struct {
	StateFrame
	Terms
}

// Terms are the ping interval and the remaining time of a connection, in the answer to a hello.
type Terms struct {
	PingMS      int64 `json:"ping_ms" minimum:"1" doc:"How often the server pings, in milliseconds."`
	ExpiresInMS int64 `json:"expires_in_ms" minimum:"1" doc:"Milliseconds until the token expires and the connection ends. The client's clock need not be right."`
}

// NewStateFrame returns a frame of type t with a badge. whole is true if the badge has all
// categories, not only the changed categories.
func NewStateFrame(t string, b *pubsub.Badge, conversations []pubsub.Conversation, whole bool) StateFrame {
	if conversations == nil {
		conversations = []pubsub.Conversation{}
	}
	f := StateFrame{
		T: t, Epoch: b.Epoch, Version: b.Version, Numbers: b.Numbers, Categories: b.Categories, Levels: b.Levels, Conversations: conversations,
	}
	if whole {
		shown := b.Shown()
		f.Categories, f.MoreCategories, f.AllCategories = shown.Categories, shown.MoreCategories, t == "changes"
	}
	return f
}

// OKFrame confirms that a command is durable.
type OKFrame struct {
	T           string          `json:"t" doc:"The type of the frame."`
	ID          json.RawMessage `json:"id,omitempty" type:"number,string" doc:"The id of the frame that this frame answers."`
	ExpiresInMS int64           `json:"expires_in_ms,omitempty" minimum:"1" doc:"Milliseconds until the new token expires; only in the answer to auth."`
}

// ErrorFrame rejects a command, which was not stored.
type ErrorFrame struct {
	T       string          `json:"t" doc:"The type of the frame."`
	ID      json.RawMessage `json:"id,omitempty" type:"number,string" doc:"The id of the frame that this frame answers."`
	Code    string          `json:"code" enum:"invalid,not_found,unavailable,rate_limited" doc:"The kind of error."`
	Message string          `json:"message" doc:"The reason, for developers."`
	RetryMS int64           `json:"retry_ms,omitempty" minimum:"1" doc:"Milliseconds to wait before trying again; absent if another attempt would fail too."`
}

// The codes of error frames.
const (
	CodeInvalid     = "invalid"      // the frame is invalid; do not repeat it
	CodeNotFound    = "not_found"    // the user has no such conversation
	CodeUnavailable = "unavailable"  // not stored; try again after retry_ms
	CodeRateLimited = "rate_limited" // too many frames; try again after retry_ms
)

// ByeFrame precedes the close frame.
type ByeFrame struct {
	T           string `json:"t" doc:"The type of the frame."`
	Code        int    `json:"code" minimum:"1000" maximum:"4999" doc:"The code of the close frame that follows."`
	Reason      string `json:"reason,omitempty" doc:"The reason, for developers."`
	ReconnectMS int64  `json:"reconnect_ms,omitempty" minimum:"1" doc:"Milliseconds to wait before reconnecting."`
}

// BareFrame is a ping or a pong.
type BareFrame struct {
	T string `json:"t" doc:"The type of the frame."`
}

// The close codes of the protocol. After codes 4001 to 4004 a client does not reconnect. After
// codes 4100 to 4199 it reconnects with backoff. After codes from 4200 it reconnects after the
// delay in the bye frame, if the bye frame has one.
const (
	CloseBadToken        = 4001
	CloseProtocol        = 4002
	CloseForbidden       = 4003
	CloseNoProtocol      = 4004
	CloseCapacity        = 4100
	CloseRateLimited     = 4101
	CloseUserConnections = 4102
	CloseSlow            = 4103
	CloseDraining        = 4200
	CloseNoPong          = 4201
	CloseTokenExpired    = 4202
	CloseResync          = 4203
)
