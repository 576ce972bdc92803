package conformance

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"strings"

	"github.com/badged/badged/web"
)

// frame is a frame of the protocol. Its numbers are of type json.Number, since float64 would round
// large seqs.
type frame map[string]any

// decodeFrame decodes a JSON object.
func decodeFrame(text []byte) (frame, error) {
	var f frame
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	if err := dec.Decode(&f); err != nil {
		return nil, fmt.Errorf("a frame must be a JSON object: %w", err)
	}
	return f, nil
}

// decodeClientFrame decodes a frame of the client and checks its size.
func decodeClientFrame(text []byte) (frame, error) {
	f, err := decodeFrame(text)
	if t := f.text("t"); err == nil && len(text) > maxFrameBytes && t != "hello" && t != "auth" {
		return nil, fmt.Errorf("a frame without a token may have %d bytes, not %d", maxFrameBytes, len(text))
	}
	return f, err
}

// golden returns a golden frame by its file name without ".json".
func golden(name string) frame {
	text, err := fs.ReadFile(web.Frames(), name+".json")
	if err != nil {
		panic(err) // the files are embedded, and the names are in this package
	}
	f, err := decodeFrame(text)
	if err != nil {
		panic(err)
	}
	return f
}

// with returns a copy of the frame in which a field has another value.
func (f frame) with(field string, value any) frame {
	changed := maps.Clone(f)
	changed[field] = value
	return changed
}

func (f frame) text(field string) string {
	s, _ := f[field].(string)
	return s
}

func (f frame) encode() []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // frames are made of JSON or of constants
	}
	return b
}

// conversation has the fields of a conversation that clients print.
type conversation struct {
	Unread       int64 `json:"unread"`
	Mentions     int64 `json:"mentions"`
	MarkedUnread bool  `json:"marked_unread"`
	// LevelUntil is empty if the level does not end, or if the client does not print it.
	LevelUntil string `json:"level_until"`
}

// looksLike reports whether a client may print `c` for a conversation whose state on the server is
// `other`. The client may omit the time at which the level ends.
func (c conversation) looksLike(other conversation) bool {
	return c == other || c.LevelUntil == "" && c == other.withoutEnd()
}

func (c conversation) withoutEnd() conversation {
	c.LevelUntil = ""
	return c
}

// state is a state of the user that a client knows and shows. It lists only conversations that have
// unread messages or mentions, or are marked unread.
type state struct {
	Epoch         string                  `json:"epoch"`
	Version       int64                   `json:"version"`
	Total         int64                   `json:"total"`
	Conversations map[string]conversation `json:"conversations"`
	// UnreadConversations, Categories and Levels are nil if the client does not print them. The
	// keys of Categories and Levels are paths.
	UnreadConversations *int64             `json:"unread_conversations"`
	Categories          map[string]numbers `json:"categories"`
	Levels              map[string]string  `json:"levels"`
}

type numbers struct {
	Total               int64 `json:"total"`
	Mentions            int64 `json:"mentions"`
	UnreadConversations int64 `json:"unread_conversations"`
	Unseen              int64 `json:"unseen"`
	Muted               struct {
		Total         int64 `json:"total"`
		Conversations int64 `json:"conversations"`
	} `json:"muted"`
	Marked int64 `json:"marked"`
}

// after returns the state that a client has after it has received the frame `f` in the state `s`. A
// snapshot replaces the state. A changes frame is ignored unless it has the same epoch as the state
// and a greater version. All other frames leave the state as it is.
func (s state) after(f frame) state {
	var update struct {
		T             string `json:"t"`
		AllCategories bool   `json:"all_categories"`
		state
		Conversations []struct {
			ID string `json:"conversation_id"`
			conversation
		} `json:"conversations"`
	}
	if err := json.Unmarshal(f.encode(), &update); err != nil {
		panic(err) // scripts send valid frames
	}
	if update.T != "snapshot" && (update.T != "changes" || update.Epoch != s.Epoch || update.Version <= s.Version) {
		return s
	}
	next := state{
		update.Epoch, update.Version, update.Total,
		map[string]conversation{},
		update.UnreadConversations,
		map[string]numbers{},
		map[string]string{},
	}
	if update.T == "changes" {
		maps.Copy(next.Conversations, s.Conversations)
		if !update.AllCategories {
			maps.Copy(next.Categories, s.Categories)
			if update.Levels == nil {
				maps.Copy(next.Levels, s.Levels)
			}
		}
	}
	maps.Copy(next.Categories, update.Categories)
	maps.DeleteFunc(next.Categories, func(_ string, n numbers) bool { return n == numbers{} })
	maps.Copy(next.Levels, update.Levels)
	for _, c := range update.Conversations {
		next.Conversations[c.ID] = c.conversation
	}
	return next.normal()
}

// normal returns the state without conversations in which every field except LevelUntil is zero.
func (s state) normal() state {
	listed := map[string]conversation{}
	for id, c := range s.Conversations {
		if c.withoutEnd() != (conversation{}) {
			listed[id] = c
		}
	}
	s.Conversations = listed
	return s
}

// looksLike reports whether a client may print s if the state on the server is `other`. Clients do
// not print the epoch. They may omit the number of unread conversations, the categories, the
// levels, and the times at which levels end.
func (s state) looksLike(other state) bool {
	paths := s.Categories == nil || other.Categories == nil || maps.Equal(s.Categories, other.Categories)
	levels := s.Levels == nil || other.Levels == nil || maps.Equal(s.Levels, other.Levels)
	unread := s.UnreadConversations == nil || other.UnreadConversations == nil || *s.UnreadConversations == *other.UnreadConversations
	return paths && levels && unread && s.Version == other.Version && s.Total == other.Total && maps.EqualFunc(s.Conversations, other.Conversations, conversation.looksLike)
}

func (s state) String() string {
	shown := map[string]any{"version": s.Version, "total": s.Total, "conversations": s.Conversations}
	if s.UnreadConversations != nil {
		shown["unread_conversations"] = *s.UnreadConversations
	}
	if s.Categories != nil {
		shown["categories"] = s.Categories
	}
	if s.Levels != nil {
		shown["levels"] = s.Levels
	}
	b, err := json.Marshal(shown)
	if err != nil {
		panic(err) // a state has only numbers and strings, which always encode
	}
	return string(b)
}
