package protocol

import "sync"

// FrameInfo describes a type of frame.
type FrameInfo struct {
	// T is the name of the type.
	T string
	// Means is the meaning of the frame, in sentences.
	Means string
	// Of is a value of the Go type of the frame, whose tags describe the fields.
	Of any
	// Required and Optional name the fields of the frame. If both are empty, the frame has all
	// fields of the Go type.
	Required, Optional []string
	// Command is true if POST /v1/commands accepts the frame.
	Command bool
	// Example is a frame as JSON.
	Example string
}

// ClientFrames describes the frames of clients.
func ClientFrames() []FrameInfo {
	return []FrameInfo{
		{
			T: FrameHello, Of: ClientFrame{}, Required: []string{"t"}, Optional: []string{"token", "epoch", "version", "device"},
			Means:   "The first frame of a connection, which must arrive within 5 seconds. It has the token, unless the handshake had it, and the epoch and version of the client's state, if the client has one.",
			Example: `{"t":"hello","epoch":"c9a41196e14f","version":1}`,
		},
		{
			T: FrameRead, Of: ClientFrame{}, Required: []string{"t", "conversation_id", "up_to_seq"}, Optional: []string{"id"}, Command: true,
			Means:   "The user has read a conversation up to a message. The read covers messages that were delivered to the user before it, or are within the next minute. The answer is ok even if there is no such conversation.",
			Example: `{"t":"read","id":"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10","conversation_id":"tea","up_to_seq":1}`,
		},
		{
			T: FrameReadAll, Of: ClientFrame{}, Required: []string{"t"}, Optional: []string{"id", "category"}, Command: true,
			Means:   "The user has read all conversations, or all conversations that the category covers. If category is given, it must not be empty or null.",
			Example: `{"t":"read_all","id":2}`,
		},
		{
			T: FrameMarkUnread, Of: ClientFrame{}, Required: []string{"t", "conversation_id"}, Optional: []string{"id", "seqs", "from_seq"}, Command: true,
			Means:   "Marks a conversation unread: it counts at least 1 until the user reads it up to the read position or further. With seqs, these messages count again until that read instead; recalled messages do not count. In a room, give from_seq instead of seqs: this message and all later messages that the user has read count again. The user's own messages and messages from before the user joined the room do not count.",
			Example: `{"t":"mark_unread","id":3,"conversation_id":"tea"}`,
		},
		{
			T: FrameSeen, Of: ClientFrame{}, Required: []string{"t", "conversation_id", "up_to_seq"}, Optional: []string{"id"}, Command: true,
			Means:   "The user has seen in a list that a conversation has messages, up to the given message, without reading them. The frame covers messages that were delivered to the user before it. The answer is ok even if there is no such conversation.",
			Example: `{"t":"seen","id":5,"conversation_id":"tea","up_to_seq":1}`,
		},
		{
			T: FrameSeenAll, Of: ClientFrame{}, Required: []string{"t"}, Optional: []string{"id", "category"}, Command: true,
			Means:   "The user has seen all conversations, or all conversations that the category covers. If category is given, it must not be empty or null.",
			Example: `{"t":"seen_all","id":6,"category":"acme"}`,
		},
		{
			T: FrameLevel, Of: ClientFrame{}, Required: []string{"t", "category", "level"}, Optional: []string{"id"}, Command: true,
			Means:   "Sets the level of a category. The level applies to all conversations, present and future, that the category covers and that have no level of their own. If several categories that cover a conversation have levels, the level of the longest category applies. A user can set levels of at most 500 categories; a frame for one more category changes nothing.",
			Example: `{"t":"level","id":7,"category":"acme/general","level":"none"}`,
		},
		{
			T: FrameAuth, Of: ClientFrame{}, Required: []string{"t", "token"}, Optional: []string{"id"},
			Means:   "A new token of the same user. Send it before the current token expires.",
			Example: `{"t":"auth","id":4,"token":"eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl"}`,
		},
		{
			T: FramePing, Of: BareFrame{}, Means: "Checks that the connection works; answer with a pong. The server also sends WebSocket pings, but scripts in browsers cannot see them.",
			Example: `{"t":"ping"}`,
		},
		{
			T: FramePong, Of: BareFrame{}, Means: "Answers a ping.",
			Example: `{"t":"pong"}`,
		},
	}
}

// ServerFrames describes the frames of the server.
func ServerFrames() []FrameInfo {
	return []FrameInfo{
		{
			T: "snapshot", Of: SnapshotFrame{},
			Means:   "The whole state. The server sends it as the answer to a hello without a state, with another epoch, or with a version that is unknown or too old. Later the server sends it to correct a client whose state is wrong. Replace your state with it, whatever its version is.",
			Example: `{"t":"snapshot","epoch":"c9a41196e14f","version":1,"total":1,"mentions":0,"unread_conversations":1,"unseen":1,"categories":{"chat":{"total":1,"mentions":0,"unread_conversations":1,"unseen":1}},"conversations":[{"conversation_id":"tea","unread":1,"mentions":0,"first_unread_seq":1,"read_seq":0,"last_seq":1,"level":"default","category":"chat","marked_unread":false,"version":1}],"more":false,"ping_ms":25000,"expires_in_ms":3600000}`,
		},
		{
			T: "changes", Of: ResumedFrame{},
			Required: []string{"t", "epoch", "version", "total", "mentions", "unread_conversations", "unseen", "categories", "conversations"},
			Optional: []string{"muted", "marked", "more_categories", "all_categories", "levels", "ping_ms", "expires_in_ms"},
			Means:    "What changed since the state that the client has. The server sends it as the answer to a hello with a state from which the client can continue, and for every later update. Only the answer to hello has ping_ms and expires_in_ms.",
			Example:  `{"t":"changes","epoch":"c9a41196e14f","version":2,"total":0,"mentions":0,"unread_conversations":0,"unseen":0,"categories":{"chat":{"total":0,"mentions":0,"unread_conversations":0,"unseen":0}},"conversations":[{"conversation_id":"tea","unread":0,"mentions":0,"first_unread_seq":0,"read_seq":1,"last_seq":1,"level":"default","category":"chat","marked_unread":false,"version":2}]}`,
		},
		{
			T: "ok", Of: OKFrame{},
			Means:   "The command is durable, or the new token of an auth frame is in use. If a command changes the state, a changes frame with the change comes before or after this frame.",
			Example: `{"t":"ok","id":1}`,
		},
		{
			T: "error", Of: ErrorFrame{},
			Means:   "The server did not carry out the frame. If the frame was a command, it was not stored.",
			Example: `{"t":"error","id":2,"code":"unavailable","message":"not saved; try again","retry_ms":1400}`,
		},
		{
			T: FramePing, Of: BareFrame{}, Means: "Checks that the connection works; answer with a pong. The server also sends WebSocket pings, but scripts in browsers cannot see them.",
			Example: `{"t":"ping"}`,
		},
		{
			T: FramePong, Of: BareFrame{}, Means: "Answers a ping.",
			Example: `{"t":"pong"}`,
		},
		{
			T: "bye", Of: ByeFrame{}, Means: "Comes just before the close frame and says why the connection ends. A client that is too slow does not get this frame.",
			Example: `{"t":"bye","code":4200,"reason":"the server is going away","reconnect_ms":2543}`,
		},
	}
}

// CodeInfo describes a close code or an error code.
type CodeInfo struct {
	// Code is a close code, or 0 for an error code.
	Code int
	// Name is the error code, or a short name for the close code.
	Name string
	// Means is what has happened, and Then is what the client should do.
	Means, Then string
}

// CloseCodes describes the codes with which connections end.
func CloseCodes() []CodeInfo {
	const (
		never   = "do not reconnect"
		backOff = "back off"
		later   = "back off, for at least `reconnect_ms`"
		asTold  = "reconnect after `reconnect_ms`"
	)
	return []CodeInfo{
		{CloseBadToken, "bad token", "the token is missing, bad or revoked", never + "; get another token"},
		{CloseProtocol, "protocol error", "a missing, late, invalid or second `hello`, a binary frame, or a frame that is not a JSON object", never + "; fix the client"},
		{CloseForbidden, "forbidden", "`auth` with a token of another user", never},
		{CloseNoProtocol, "no common subprotocol", "the subprotocol `badge.v1` was not offered", never + "; fix the client"},
		{CloseCapacity, "over capacity", "the server has reached its limit of connections, or too many clients connect at once", later},
		{CloseRateLimited, "rate limited", "too many connections from your address, or too many commands, pings, pongs or bytes from you", later},
		{CloseUserConnections, "too many connections of this user", "the user has reached the limit of connections; the existing connections stay open", later},
		{CloseSlow, "too slow", "the client reads too slowly", backOff},
		{CloseDraining, "draining", "the server is going away", asTold},
		{CloseNoPong, "no pong", "the client did not answer pings", "reconnect"},
		{CloseTokenExpired, "token expired", "the token has expired", "reconnect with a new token"},
		{CloseResync, "resync", "the state cannot be read or the token cannot be verified right now, or the backend has disconnected the user", asTold},
		{1007, "invalid text", "a frame that is not UTF-8", "fix the client"},
		{1009, "too large", "a frame larger than 20 KiB", "fix the client"},
	}
}

// ErrorCodes describes the codes of error frames.
func ErrorCodes() []CodeInfo {
	return []CodeInfo{
		{Name: CodeInvalid, Means: "the frame is invalid", Then: "do not repeat it"},
		{Name: CodeNotFound, Means: "for `mark_unread`: the user is not a member of this conversation and no message of it was delivered to the user, or the user has left it; with a token that is restricted to categories, also for `read` and `seen`: the conversation is in none of these categories", Then: "do not repeat it"},
		{Name: CodeUnavailable, Means: "the command was not stored; for `auth`: the new token could not be verified, and the current token stays in use", Then: "try again after `retry_ms`"},
		{Name: CodeRateLimited, Means: "the command was not stored, since the client sends too many frames; if the client goes on, the connection is closed with 4101", Then: "try again after `retry_ms`"},
	}
}

// CommandTypes returns the types of frames that are commands.
var CommandTypes = sync.OnceValue(func() (types []string) {
	for _, f := range ClientFrames() {
		if f.Command {
			types = append(types, f.T)
		}
	}
	return types
})
