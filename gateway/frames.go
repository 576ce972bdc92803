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
	T string `json:"t"`
	// ID is echoed: a number or a string. A UUID also names the command for
	// good, across connections.
	ID             json.RawMessage `json:"id"`
	Token          string          `json:"token"`
	Epoch          string          `json:"epoch"`
	Version        int64           `json:"version"`
	ConversationID string          `json:"conversation_id"`
	UpToSeq        int64           `json:"up_to_seq"`
	Category       string          `json:"category"`
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
	T             string                `json:"t"`
	Epoch         string                `json:"epoch"`
	Version       int64                 `json:"version"`
	Total         int64                 `json:"total"`
	Mentions      int64                 `json:"mentions"`
	Categories    map[string]int64      `json:"categories"`
	Conversations []pubsub.Conversation `json:"conversations"`
}

// position names the state that a client holds with the frame.
func (f stateFrame) position() string { return f.Epoch + ":" + strconv.FormatInt(f.Version, 10) }

// snapshotFrame is the whole state, for a client that holds none of it.
type snapshotFrame struct {
	stateFrame
	More bool `json:"more"`
	connectionTerms
}

// resumedFrame is what changed since what a client held when it connected.
type resumedFrame struct {
	stateFrame
	connectionTerms
}

// connectionTerms are part of the answer to a hello.
type connectionTerms struct {
	// PingMS is how often to expect a ping.
	PingMS int64 `json:"ping_ms"`
	// ExpiresAt is when the token ends.
	ExpiresAt time.Time `json:"expires_at"`
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
	T  string          `json:"t"`
	ID json.RawMessage `json:"id,omitempty"`
	// ExpiresAt is when a fresh token ends; in the answer to auth only.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// errorFrame says that it is not.
type errorFrame struct {
	T       string          `json:"t"`
	ID      json.RawMessage `json:"id,omitempty"`
	Code    string          `json:"code"`
	Message string          `json:"message"`
	// RetryMS is when to try again; absent where there is no point in it.
	RetryMS int64 `json:"retry_ms,omitempty"`
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
	T           string `json:"t"`
	Code        int    `json:"code"`
	Reason      string `json:"reason,omitempty"`
	ReconnectMS int64  `json:"reconnect_ms,omitempty"`
}

// bareFrame is a ping or a pong.
type bareFrame struct {
	T string `json:"t"`
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
