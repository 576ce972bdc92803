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

// Badge is the numbers of a user as of one version. It is a whole state: of two badges of one
// user with the same epoch, the badge with the greater version is newer; compare nothing else.
type Badge struct {
	UserID string `json:"user_id" doc:"The user."`
	// Epoch names the sequence in which Version counts. Versions of different epochs do not
	// compare: a client with another epoch needs the whole state.
	Epoch   string `json:"epoch" doc:"The sequence in which the version counts. Versions of different epochs do not compare: a client with another epoch takes the whole state again."`
	Version int64  `json:"version" minimum:"0" doc:"Grows by one with every event that changes something a client of the user can see; 0 for a user without events."`
	Numbers
	// Categories has the numbers of every path that has a number other than zero. In an
	// [Update] it has only the paths whose numbers changed, and the numbers of a path may all
	// be zero. badged never makes a badge with nil here.
	Categories map[string]Numbers `json:"categories" doc:"The numbers of each category with anything to show, and of each above it. Of more than 500, the first by name."`
	// MoreCategories says that Categories is cut at the first by name: see [Badge.Shown].
	MoreCategories bool `json:"more_categories,omitempty" doc:"True if there are more categories than these; absent otherwise."`
	// Levels are the levels that the user has set for paths. In an Update they are nil if they
	// did not change.
	Levels map[string]string `json:"levels,omitzero" doc:"The level of each category that has one; absent if none has. It applies to the conversations that the category covers and that have no level of their own, unless a longer one has a level."`
}

// Numbers are the numbers of a badge or of a category.
type Numbers = category.Numbers

// Muted is what the levels of conversations exclude from the total.
type Muted = category.Muted

// MaxCategories is the most categories that [Badge.Shown] shows.
const MaxCategories = 500

// Shown returns the badge as clients and endpoints get it: its categories are the first
// MaxCategories by name and the paths in also. The other numbers still cover all categories.
// The result may share maps with b.
func (b *Badge) Shown(also ...string) Badge {
	shown := *b
	if len(b.Categories) <= MaxCategories {
		return shown
	}
	shown.MoreCategories = true
	names := slices.Sorted(maps.Keys(b.Categories))[:MaxCategories]
	shown.Categories = make(map[string]Numbers, MaxCategories)
	for _, name := range append(names, also...) {
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
	Unread         int64     `json:"unread" minimum:"0" doc:"Unread messages: delivered, not recalled, and above read_seq, or marked unread."`
	Mentions       int64     `json:"mentions" minimum:"0" doc:"Unread messages that mention the user; at the level direct_mentions, by name."`
	Seen           int64     `json:"seen,omitempty" minimum:"0" doc:"How many of the unread messages are seen: they are at or below the seen position, or marked unread; absent if none is."`
	SeenMentions   int64     `json:"seen_mentions,omitempty" minimum:"0" doc:"How many of the mentions are seen; absent if none is."`
	FirstUnreadSeq int64     `json:"first_unread_seq" minimum:"0" doc:"The lowest unread seq, where an app jumps to; 0 if nothing is unread."`
	ReadSeq        int64     `json:"read_seq" minimum:"0" doc:"The read position, which never moves back."`
	SeenSeq        int64     `json:"seen_seq,omitempty" minimum:"0" doc:"The seen position, which never moves back; absent if it is not above read_seq."`
	LastSeq        int64     `json:"last_seq" minimum:"0" doc:"The highest seq that was delivered to the user."`
	Level          string    `json:"level" enum:"default,all,mentions,direct_mentions,none" doc:"What the conversation adds to the total: its unread messages, those that mention the user, those that mention the user by name, or nothing. By default the level of the longest category applies that has one and covers the conversation, or else all."`
	LevelUntil     time.Time `json:"level_until,omitzero" doc:"When the level ends; absent if it does not."`
	Category       string    `json:"category" doc:"The category of the conversation, a path with slashes."`
	MarkedUnread   bool      `json:"marked_unread" doc:"The conversation counts at least 1 until it is read."`
	Left           bool      `json:"left,omitempty" doc:"True if the user has left the conversation: remove it from every list. Absent otherwise."`
	Version        int64     `json:"version" minimum:"0" doc:"The user's version at the last change of the conversation; in a room, the user's present version."`
}

// Update is what changed for one user in one commit of the projector: the user's whole badge
// and the whole state of each conversation that changed.
//
// It brings a client with BaseVersion or later up to date. A client with an older version has
// missed an update and must read its state again: the totals of the Update are right, but
// Conversations does not have what the missed update changed.
type Update struct {
	Badge
	// Partition is the partition of the user before any split; a bus may route by it.
	Partition int `json:"partition"`
	// BaseVersion is the version of the user before the commit.
	BaseVersion int64 `json:"base_version"`
	// Conversations are the conversations that changed after BaseVersion, each once, the most
	// recently changed first.
	Conversations []Conversation `json:"conversations"`
	// AppendedAt is when the oldest event of the changes was appended, by the clock of the
	// database, in microseconds since 1970; 0 if unknown.
	AppendedAt int64 `json:"appended_at,omitempty"`
	// TraceParent is the W3C trace context of the last traced change; empty if none is traced.
	TraceParent string `json:"traceparent,omitempty"`
	// Memberships are the user's memberships that changed in the commit and still exist. A
	// membership that ended is a conversation in Conversations.
	//
	// A client shows the sum of Badge and of all memberships (see [Membership]): Badge,
	// BaseVersion and the versions of Conversations do not include the memberships, so clients
	// see exactly these values only for a user without memberships. What an ended membership
	// added to the version stays part of Badge's version.
	Memberships []Membership `json:"memberships,omitempty"`
	// Ended says that connections of the user must end. Then only UserID and Partition are
	// set. The gateway reads from the tables whether this is true, and for which tokens.
	Ended bool `json:"ended,omitempty"`
}

// Address returns the address of the user, where the update is published.
func (u *Update) Address() Address { return Address{ID: u.UserID, Partition: u.Partition} }

func (u *Update) deliver(h Handler) { h.HandleUpdate(u) }

// Held is the state that a client of a user has; an empty Epoch means that it has none.
type Held struct {
	UserID  string
	Epoch   string
	Version int64
}

// Snapshot is the state of one user, read from the tables at one instant.
type Snapshot struct {
	Badge
	// Conversations are sorted by their last change, newest first.
	Conversations []Conversation `json:"conversations"`
	// More says that Conversations was cut at its limit.
	More bool `json:"more"`
	// Whole is set if Conversations are all conversations with something to show, and not just
	// the conversations that changed since the held state.
	Whole bool `json:"-"`
	// Memberships are all memberships of the user, changed or not. Rest is Badge without them,
	// as in [Update].Badge. Rest is not used if there are no memberships.
	Memberships []Membership `json:"-"`
	Rest        Badge        `json:"-"`
}

// Within returns the badge of the given paths alone. No path may cover another, and b must
// have all of them. The result has the user's version, but an epoch of its own for these
// paths: a client with a state of this epoch has received nothing of other paths.
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

// LevelsWithin returns the levels that apply to conversations below the given paths, nil if
// there are none.
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

// epochWithin returns the epoch of a badge that is limited to categories, which are sorted.
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
