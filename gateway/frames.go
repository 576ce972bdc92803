package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/badged/badged/pubsub"
)

// Protocol is the WebSocket subprotocol that the gateway speaks.
const Protocol = "badge.v1"

// MaxFrameBytes is the most that one frame of a client may have.
const MaxFrameBytes = 4096

// The frames of clients, by their field t.
const (
	frameHello      = "hello"
	frameRead       = "read"
	frameReadAll    = "read_all"
	frameMarkUnread = "mark_unread"
	frameAuth       = "auth"
	framePing       = "ping"
	framePong       = "pong"
)

// clientFrame is any frame of a client. Fields that it does not know are
// ignored, so that newer clients can talk to older servers.
type clientFrame struct {
	T              string          `json:"t" doc:"The type of the frame."`
	ID             json.RawMessage `json:"id" type:"number,string" doc:"Echoed in the answer; at most 128 bytes. A UUID also names the command for good, across connections: it takes effect once."`
	Token          string          `json:"token" minLength:"1" doc:"A token of the user, a JWT."`
	Epoch          string          `json:"epoch" doc:"The epoch of the state that the client holds."`
	Version        int64           `json:"version" minimum:"0" doc:"The version of the state that the client holds."`
	ConversationID string          `json:"conversation_id" minLength:"1" maxLength:"128" doc:"The conversation."`
	UpToSeq        int64           `json:"up_to_seq" minimum:"1" doc:"The last message that the user has read."`
	Category       string          `json:"category" minLength:"1" maxLength:"64" doc:"Only the conversations of this category."`
}

// maxIDBytes bounds what is echoed.
const maxIDBytes = 128

// decodeFrame reads a frame of a client. Its errors are safe to show.
func decodeFrame(b []byte) (clientFrame, error) {
	var f clientFrame
	if err := json.Unmarshal(b, &f); err != nil {
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) && typ.Field != "" {
			return f, fmt.Errorf("field %s must not be a JSON %s", typ.Field, typ.Value)
		}
		return f, errors.New("frame is not a JSON object")
	}
	if f.T == "" {
		return f, errors.New("frame has no type t")
	}
	if len(f.ID) > 0 {
		if len(f.ID) > maxIDBytes {
			return f, fmt.Errorf("id has more than %d bytes", maxIDBytes)
		}
		if c := f.ID[0]; c != '"' && c != '-' && (c < '0' || c > '9') {
			return f, errors.New("id must be a number or a string")
		}
	}
	return f, nil
}

// key returns what names the command for good: the id where it is a UUID, in
// one spelling, and "" for ids that are good for one connection only.
func (f *clientFrame) key() string {
	const uuidBytes = 36 // without braces and the like
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

// stateFrame is a snapshot or changes.
type stateFrame struct {
	T             string                `json:"t" doc:"The type of the frame."`
	Epoch         string                `json:"epoch" doc:"The sequence that version counts in."`
	Version       int64                 `json:"version" minimum:"0" doc:"The version of this state: apply it only if it is greater than yours, or the epoch is another."`
	Total         int64                 `json:"total" minimum:"0" doc:"The badge."`
	Mentions      int64                 `json:"mentions" minimum:"0" doc:"How many unread messages mention the user, over the conversations whose level is not none."`
	Categories    map[string]int64      `json:"categories" doc:"The total by category; categories that add nothing are absent."`
	Conversations []pubsub.Conversation `json:"conversations" maxItems:"500" doc:"Of a snapshot those with anything to show, of changes those that changed, also where nothing is left to show; most recently changed first."`
}

// position names the state that a client holds with the frame.
func (f stateFrame) position() string { return f.Epoch + ":" + strconv.FormatInt(f.Version, 10) }

// snapshotFrame is the whole state, for a client that holds none of it.
type snapshotFrame struct {
	stateFrame
	More bool `json:"more" doc:"There are conversations with something to show beyond these."`
	connectionTerms
}

// resumedFrame is what changed since what a client held when it connected.
type resumedFrame struct {
	stateFrame
	connectionTerms
}

// connectionTerms are part of the answer to a hello.
type connectionTerms struct {
	PingMS    int64     `json:"ping_ms" minimum:"1" doc:"How often the server pings, in milliseconds."`
	ExpiresAt time.Time `json:"expires_at" doc:"When the token ends, and the connection with it."`
}

func newStateFrame(t string, b *pubsub.Badge, conversations []pubsub.Conversation) stateFrame {
	if conversations == nil {
		conversations = []pubsub.Conversation{}
	}
	return stateFrame{
		T: t, Epoch: b.Epoch, Version: b.Version,
		Total: b.Total, Mentions: b.Mentions, Categories: b.Categories,
		Conversations: conversations,
	}
}

// okFrame says that what the client did is durable.
type okFrame struct {
	T         string          `json:"t" doc:"The type of the frame."`
	ID        json.RawMessage `json:"id,omitempty" type:"number,string" doc:"The id of what it answers."`
	ExpiresAt time.Time       `json:"expires_at,omitzero" doc:"When a fresh token ends; in the answer to auth only."`
}

// errorFrame says that it is not.
type errorFrame struct {
	T       string          `json:"t" doc:"The type of the frame."`
	ID      json.RawMessage `json:"id,omitempty" type:"number,string" doc:"The id of what it answers."`
	Code    string          `json:"code" enum:"invalid,not_found,unavailable,rate_limited" doc:"Why."`
	Message string          `json:"message" doc:"Why, told to developers."`
	RetryMS int64           `json:"retry_ms,omitempty" minimum:"1" doc:"After how many milliseconds to try again; absent where there is no point in it."`
}

// The codes of error frames.
const (
	codeInvalid     = "invalid"      // the frame makes no sense; do not repeat it
	codeNotFound    = "not_found"    // nothing was ever delivered there
	codeUnavailable = "unavailable"  // not durable; try again after retry_ms
	codeRateLimited = "rate_limited" // too many; try again after retry_ms
)

// byeFrame comes before the close frame.
type byeFrame struct {
	T           string `json:"t" doc:"The type of the frame."`
	Code        int    `json:"code" minimum:"1000" maximum:"4999" doc:"The code of the close frame that follows."`
	Reason      string `json:"reason,omitempty" doc:"Why, told to developers."`
	ReconnectMS int64  `json:"reconnect_ms,omitempty" minimum:"1" doc:"After how many milliseconds to come back."`
}

// bareFrame is a ping or a pong.
type bareFrame struct {
	T string `json:"t" doc:"The type of the frame."`
}

// closing is why a connection ends, as its close frame says it.
type closing struct {
	code   int
	reason string
	// reconnect is a hint after which time to come back; 0 is none.
	reconnect time.Duration
}

// The close codes of the protocol. A client does not come back after those
// from 4001 to 4004, backs off after those from 4100, and comes back as told
// after those from 4200.
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
