package importing

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/rfc3339"
)

// Format is a file format.
type Format string

// The formats.
const (
	// States is the CSV or NDJSON that [Reader] describes.
	States Format = "states"
	// Mattermost is a bulk export as mmctl export writes it: lines of JSON, each with a type. First
	// come lines of users, which list their channels with last_viewed_at, then lines of posts. The
	// seq of a post is its time in milliseconds since 1970.
	Mattermost Format = "mattermost"
	// RocketChat is the collection of subscriptions as mongoexport writes it. It has only the
	// number of unread messages of a room, not the messages. So the import invents seqs for these
	// messages: consecutive numbers from just above the time (in milliseconds) at which the user
	// last visited or joined the room. If a room belongs to a team, its category consists of the
	// ids of the team and the room.
	RocketChat Format = "rocketchat"
)

// subscription is a document of Rocket.Chat's subscriptions: a user in a room.
type subscription struct {
	RoomID string `json:"rid"`
	User   *struct {
		ID string `json:"_id"`
	} `json:"u"`
	TeamID        string      `json:"teamId"` // set for each room of a team, including the main room of the team
	LastSeen      mongoTime   `json:"ls"`     // absent before the first visit
	Joined        mongoTime   `json:"ts"`
	Unread        mongoNumber `json:"unread"`
	UserMentions  mongoNumber `json:"userMentions"`
	GroupMentions mongoNumber `json:"groupMentions"`
	// Open is false if the user has hidden the room.
	Open     *bool `json:"open"`
	Archived bool  `json:"archived"`
	// Alert is true while the room has unread messages, even if Unread does not count them.
	Alert              bool `json:"alert"`
	HideUnreadStatus   bool `json:"hideUnreadStatus"`
	HideMentionsStatus bool `json:"hideMentionStatus"`
}

func (r *Reader) parseRocketChat(line []byte) error {
	var s subscription
	if err := json.Unmarshal(line, &s); err != nil {
		return wrong("line", "is not a document of the subscriptions as mongoexport writes it, without --jsonArray: %v", err)
	}
	read := max(s.LastSeen, s.Joined)
	switch {
	case s.User == nil || s.User.ID == "":
		return wrong("u._id", "is required")
	case s.RoomID == "":
		return wrong("rid", "is required")
	case read <= 0:
		return wrong("ls", "is required, or ts")
	case s.Unread < 0:
		return wrong("unread", "must be 0 or more, is %d", s.Unread)
	}
	switch {
	case s.Archived:
		r.skip("of archived rooms")
		return nil
	case s.Open != nil && !*s.Open:
		r.skip("of rooms that the user has hidden")
		return nil
	}
	n := min(int64(s.Unread), MaxUnread)
	row := Row{
		UserID: s.User.ID, ConversationID: s.RoomID, ReadSeq: int64(read), LastSeq: int64(read) + n,
		MarkedUnread: s.Alert && n == 0,
	}
	for i := range n {
		row.Unread = append(row.Unread, row.ReadSeq+1+i)
	}
	row.Mentions = newest(row.Unread, int64(s.UserMentions+s.GroupMentions))
	if s.TeamID != "" {
		row.Category = s.TeamID + "/" + s.RoomID
	}
	switch {
	case s.HideUnreadStatus && s.HideMentionsStatus:
		row.Level = events.LevelNone
	case s.HideUnreadStatus:
		row.Level = events.LevelMentions
	}
	return r.add(row, stated{listed: true, empty: EmptyIsNone})
}

// newest returns the last n seqs, or all seqs if there are fewer.
func newest(seqs []int64, n int64) []int64 {
	return append([]int64(nil), seqs[len(seqs)-int(min(max(n, 0), int64(len(seqs)))):]...)
}

// mongoNumber is a number in extended JSON: 3, or {"$numberInt":"3"}.
type mongoNumber int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *mongoNumber) UnmarshalJSON(b []byte) error {
	var tagged struct {
		Int    string `json:"$numberInt"`
		Long   string `json:"$numberLong"`
		Double string `json:"$numberDouble"`
	}
	text := string(b)
	if json.Unmarshal(b, &tagged) == nil && text != "null" {
		text = tagged.Int + tagged.Long + tagged.Double
	}
	if text == "null" {
		return nil
	}
	value, err := strconv.ParseFloat(text, 64) // Rocket.Chat writes doubles
	if err != nil {
		return fmt.Errorf("%.40s is not a number", b)
	}
	*n = mongoNumber(value)
	return nil
}

// mongoTime is a time in milliseconds since 1970. In extended JSON it is {"$date":"…"} with an RFC
// 3339 time, or {"$date":n} with a number.
type mongoTime int64

// UnmarshalJSON implements json.Unmarshaler.
func (m *mongoTime) UnmarshalJSON(b []byte) error {
	var tagged struct {
		Date json.RawMessage `json:"$date"`
	}
	if string(b) == "null" {
		return nil
	}
	if err := json.Unmarshal(b, &tagged); err != nil || tagged.Date == nil {
		return fmt.Errorf(`%.60s is not a date such as {"$date":"2026-01-31T08:00:00Z"}`, b)
	}
	var text string
	if json.Unmarshal(tagged.Date, &text) == nil {
		at, err := rfc3339.ParseAny(text)
		*m = mongoTime(at.UnixMilli())
		return err
	}
	return (*mongoNumber)(m).UnmarshalJSON(tagged.Date)
}
