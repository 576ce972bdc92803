package pubsub

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/badged/badged/internal/base/category"
)

// Badge has the numbers of a user at one version. If two badges of a user have the same epoch,
// the badge with the greater Version is newer. No other field shows which badge is newer.
type Badge struct {
	UserID string `json:"user_id" doc:"The user."`
	// Epoch is an id of the sequence to which Version belongs. Versions of different epochs
	// cannot be compared: a client whose state has another epoch needs the whole state.
	Epoch   string `json:"epoch" doc:"The epoch of the version. Versions of different epochs cannot be compared: a client with another epoch must read the whole state again."`
	Version int64  `json:"version" minimum:"0" doc:"Grows by one with every event that changes something that a client of the user can see; 0 for a user without events."`
	Numbers
	// Categories has the numbers of each path that has a number other than zero. A path is a
	// category, or its beginning up to a slash. In an [Update], Categories has only the paths
	// whose numbers changed, and the new numbers of a path may all be zero. badged never sets
	// it to nil.
	Categories map[string]Numbers `json:"categories" doc:"The numbers of each category that has a number above 0, and of the categories above it; only the first 500 by name."`
	// MoreCategories is true if Categories has only some of the categories: see [Badge.Shown].
	MoreCategories bool `json:"more_categories,omitempty" doc:"True if the user has more categories than are listed; absent otherwise."`
	// Levels are the levels that the user has set for paths. In an Update, Levels is nil if no
	// level changed.
	Levels map[string]string `json:"levels,omitzero" doc:"The level of each category that has one; absent if no category has a level. It applies to the conversations that the category covers and that have no level of their own, unless a longer category that covers them has a level."`
}

// Numbers are the numbers of a badge or of a category.
type Numbers = category.Numbers

// Muted counts unread messages that a level excludes from the total.
type Muted = category.Muted

// MaxCategories is the maximum number of categories that [Badge.Shown] shows.
const MaxCategories = 500

// Shown returns the badge as clients and HTTP endpoints get it. The Categories of the result have
// only the first MaxCategories categories by name, and the paths in `extra`. The Numbers of the
// result still include all categories. The result may share maps with `b`.
func (b *Badge) Shown(extra ...string) Badge {
	shown := *b
	if len(b.Categories) <= MaxCategories {
		return shown
	}
	shown.MoreCategories = true
	names := slices.Sorted(maps.Keys(b.Categories))[:MaxCategories]
	shown.Categories = make(map[string]Numbers, MaxCategories)
	for _, name := range append(names, extra...) {
		if n, ok := b.Categories[name]; ok {
			shown.Categories[name] = n
		}
	}
	return shown
}

// LevelOf returns the level that applies to a conversation of the user.
func (b *Badge) LevelOf(c *Conversation) string {
	return category.Levels(b.Levels).Of(c.Level, c.Category)
}

// Conversation is the state of one conversation for one user, as clients see it.
type Conversation struct {
	ConversationID string    `json:"conversation_id" doc:"The conversation."`
	Unread         int64     `json:"unread" minimum:"0" doc:"The number of unread messages. A message is unread if it was delivered, was not recalled, and is above read_seq, or if it was marked unread."`
	Mentions       int64     `json:"mentions" minimum:"0" doc:"The number of unread messages that mention the user; at the level direct_mentions, only by name."`
	Seen           int64     `json:"seen,omitempty" minimum:"0" doc:"The number of unread messages that are seen, that is, are at or below the seen position or were marked unread; absent if none is."`
	SeenMentions   int64     `json:"seen_mentions,omitempty" minimum:"0" doc:"The number of messages in mentions that are seen; absent if none is."`
	FirstUnreadSeq int64     `json:"first_unread_seq" minimum:"0" doc:"The seq of the first unread message, to which an app can jump; 0 if no message is unread."`
	ReadSeq        int64     `json:"read_seq" minimum:"0" doc:"The read position. Only a reset of the conversation can move it back."`
	SeenSeq        int64     `json:"seen_seq,omitempty" minimum:"0" doc:"The seen position. Only a reset of the conversation can move it back. Absent if it is not above read_seq."`
	LastSeq        int64     `json:"last_seq" minimum:"0" doc:"The highest seq of the messages that were delivered to the user."`
	Level          string    `json:"level" enum:"default,all,mentions,direct_mentions,none" doc:"What the conversation adds to the total. all: its unread messages; mentions: unread messages that mention the user; direct_mentions: unread messages that mention the user by name; none: nothing; default: the level of the longest category applies that covers the conversation and has a level, or else all."`
	LevelUntil     time.Time `json:"level_until,omitzero" doc:"When the level ends; absent if it does not end."`
	Category       string    `json:"category" doc:"The category of the conversation: a path whose parts are separated by slashes."`
	MarkedUnread   bool      `json:"marked_unread" doc:"True if the user marked the conversation unread: it counts at least 1 until it is read."`
	Left           bool      `json:"left,omitempty" doc:"True if the user has left the conversation: remove it from every list. Absent otherwise."`
	Version        int64     `json:"version" minimum:"0" doc:"The user's version at the last change of the conversation; in a room, the user's current version."`
}

// Update is what one commit of the projector changed for one user: the user's whole badge, and
// the whole state of each conversation that changed.
//
// An update can be applied to a client whose state has the version BaseVersion or a later
// version. A client with an older version has missed an update, and its state must be read from
// the tables: the numbers in the Update are right, but Conversations lacks the conversations
// that only the missed update contained.
type Update struct {
	Badge
	// Partition is the partition that the user had before any split, so it never changes. A bus
	// may use it to choose the route of an update.
	Partition int `json:"partition"`
	// BaseVersion is the version of the user before the commit.
	BaseVersion int64 `json:"base_version"`
	// Conversations are the conversations that changed after BaseVersion, each once, the most
	// recently changed first.
	Conversations []Conversation `json:"conversations"`
	// AppendedAt is when the oldest event that caused these changes was appended, by the clock
	// of the database, in microseconds since 1970; 0 if unknown.
	AppendedAt int64 `json:"appended_at,omitempty"`
	// TraceParent is the W3C trace context of the last traced change; empty if none is traced.
	TraceParent string `json:"traceparent,omitempty"`
	// Memberships are the user's memberships that changed in the commit and still exist. A
	// membership that ended is in Conversations instead.
	//
	// A client shows the sum of Badge and of all memberships (see [Membership]). Badge,
	// BaseVersion and the versions of Conversations do not include the memberships. So clients
	// see exactly these values only if the user has no memberships. When a membership ends, its
	// Room.Changes - Joined is added to the version of Badge, so that the sum does not
	// decrease.
	Memberships []Membership `json:"memberships,omitempty"`
	// Ended is true if connections of the user must end. Then only UserID and Partition are set.
	// The gateway then reads from the tables which connections must end, since an update from
	// the bus may be forged.
	Ended bool `json:"ended,omitempty"`
}

// Address returns the address of the user, to which the update is published.
func (u *Update) Address() Address { return Address{ID: u.UserID, Partition: u.Partition} }

func (u *Update) deliver(h Handler) { h.HandleUpdate(u) }

// Held names a user, and the state that the user's client has. An empty Epoch means that the
// client has no state.
type Held struct {
	UserID  string
	Epoch   string
	Version int64
}

// Snapshot is the state of one user, read from the tables in one database snapshot.
type Snapshot struct {
	Badge
	// Conversations are sorted by their last change, newest first.
	Conversations []Conversation `json:"conversations"`
	// More is true if there are more conversations than the limit of Conversations allows.
	More bool `json:"more"`
	// Whole is true if Conversations has all conversations that a client lists (up to a limit,
	// see More). Otherwise Conversations has only conversations that changed since the client's
	// state.
	Whole bool `json:"-"`
	// Memberships are all memberships of the user, even if none has changed. Rest is the
	// badge without the memberships, as in [Update].Badge. Ignore Rest if there are no
	// memberships.
	Memberships []Membership `json:"-"`
	Rest        Badge        `json:"-"`
}

// Within returns the part of the badge that belongs to the given paths. No path may cover
// another, and b must have the numbers of all paths. The result has the version of the user,
// but its own epoch, which is derived from the paths. So it is never mistaken for a state with
// other paths.
func (b *Badge) Within(paths []string) Badge {
	within := Badge{
		UserID: b.UserID, Epoch: epochWithin(b.Epoch, paths), Version: b.Version, MoreCategories: b.MoreCategories,
		Categories: map[string]Numbers{}, Levels: LevelsWithin(b.Levels, paths),
	}
	for _, path := range paths {
		within.Add(b.Categories[path])
	}
	for name, n := range b.Categories {
		if category.AnyCovers(paths, name) {
			within.Categories[name] = n
		}
	}
	return within
}

// LevelsWithin returns the levels that can apply to conversations that the given paths cover;
// nil if there are none. The result includes the levels of categories that cover one of the
// paths.
func LevelsWithin(levels map[string]string, paths []string) map[string]string {
	var within map[string]string
	for name, level := range levels {
		if !category.AnyCovers(paths, name) && !slices.ContainsFunc(paths, func(path string) bool { return category.Covers(name, path) }) {
			continue
		}
		if within == nil {
			within = map[string]string{}
		}
		within[name] = level
	}
	return within
}

// epochWithin returns the epoch of a badge that is limited to categories. The categories must
// be sorted.
func epochWithin(epoch string, categories []string) string {
	digest := sha256.New()
	for _, category := range categories {
		_, _ = fmt.Fprintf(digest, "%d:%s", len(category), category) // writing to a hash never fails
	}
	return epoch + "." + hex.EncodeToString(digest.Sum(nil)[:8])
}

// TimeOf converts microseconds since 1970 to a time. 0 gives the zero time.
func TimeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
