package pubsub

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/badged/badged/internal/category"
)

// Badge is the number a user sees and what it is made of, as of one version.
// It is absolute: of two badges of one user with the same epoch, the one with
// the greater version is the newer, and nothing else need be compared.
type Badge struct {
	UserID string `json:"user_id" doc:"The user."`
	// Epoch names the sequence that Version counts in. Versions of different
	// epochs do not compare: a client with another epoch needs the whole state.
	Epoch   string `json:"epoch" doc:"The sequence in which the version counts. Versions of different epochs do not compare: a client with another epoch takes the whole state again."`
	Version int64  `json:"version" minimum:"0" doc:"Grows by one with every event that changes something a client of the user can see; 0 for a user without events."`
	Numbers
	// Categories are the numbers of the paths that have any. In an [Update] they are those
	// of the paths that changed, with zeros for one that has none any more. Nil is not used
	// in a badge that badged made.
	Categories map[string]Numbers `json:"categories" doc:"The numbers of each category with anything to show, and of each above it. Of more than 500, the first by name."`
	// MoreCategories says that Categories has only the first by name: see [Badge.Shown].
	MoreCategories bool `json:"more_categories,omitempty" doc:"True if there are more categories than these; absent otherwise."`
	// Levels are the levels of paths that the user has set. In an Update they are nil if they
	// did not change.
	Levels map[string]string `json:"levels,omitzero" doc:"The level of each category that has one; absent if none has. It applies to the conversations that the category covers and that have no level of their own, unless a longer one has a level."`
}

// Numbers are those of a badge or of a category.
type Numbers = category.Numbers

// Muted is what levels keep out of the total.
type Muted = category.Muted

// MaxCategories is the most categories that [Badge.Shown] shows.
const MaxCategories = 500

// Shown returns the badge as clients and endpoints get it: with the first MaxCategories
// by name, and those in also. The other numbers stay those of all. It may share the maps
// of b.
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

// Conversation is the state of one conversation for one user, as clients see
// it.
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

// Update is what changed for one user by one commit of the projector: the
// user's whole badge and the whole state of each conversation that changed.
//
// It is complete for a client that holds BaseVersion or later. A client that
// holds an older version has missed an update and must read its state again: the
// totals are right, but Conversations lacks what the missed update changed.
type Update struct {
	Badge
	// Partition is the partition of the user before any was split; a bus may route by it.
	Partition int `json:"partition"`
	// BaseVersion is the version of the user before the commit.
	BaseVersion int64 `json:"base_version"`
	// Conversations holds each conversation that changed after BaseVersion,
	// once, most recently changed first.
	Conversations []Conversation `json:"conversations"`
	// AppendedAt is when the oldest event of the changes was appended, by the
	// clock of the database, in microseconds since 1970; 0 if unknown.
	AppendedAt int64 `json:"appended_at,omitempty"`
	// TraceParent is the W3C trace context of the last traced change; empty if
	// none is traced.
	TraceParent string `json:"traceparent,omitempty"`
	// Memberships are the user's memberships that changed in the commit and
	// still exist. One that ended is among Conversations.
	//
	// A client's numbers are those of Badge and of all memberships together (see
	// [Membership]): Badge, BaseVersion and the versions of Conversations leave
	// the memberships out. So they are final only for a user without any. What
	// ended memberships have added to the version stays in it.
	Memberships []Membership `json:"memberships,omitempty"`
	// Ended says that the user's connections are to end. Only UserID and Partition
	// are set then. Whether it is true, and of which tokens, is in the tables.
	Ended bool `json:"ended,omitempty"`
}

// Address returns where the update is published.
func (u *Update) Address() Address { return Address{ID: u.UserID, Partition: u.Partition} }

// Held is the state that a client of a user holds; without Epoch it holds none.
type Held struct {
	UserID  string
	Epoch   string
	Version int64
}

// Snapshot is the state of one user, read from the tables at one instant.
type Snapshot struct {
	Badge
	// Conversations are most recently changed first.
	Conversations []Conversation `json:"conversations"`
	// More says that Conversations was cut at its limit.
	More bool `json:"more"`
	// Whole is set if Conversations has all with something to show, rather than
	// those that changed since the held state.
	Whole bool `json:"-"`
	// Memberships are all memberships of the user, changed or not, and Rest is
	// Badge without them: what [Update].Badge would be. Rest is not used if
	// there are none.
	Memberships []Membership `json:"-"`
	Rest        Badge        `json:"-"`
}

// Within returns the badge of some paths alone, of which none covers another. It has the
// version of the user, and an epoch of its own for these paths: a client that holds it holds
// nothing of the others. The badge must have these paths.
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

// LevelsWithin returns the levels that apply to conversations below some paths, nil if
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

// epochWithin returns the epoch of a badge of some categories, sorted, alone.
func epochWithin(epoch string, categories []string) string {
	digest := sha256.New()
	for _, category := range categories {
		_, _ = fmt.Fprintf(digest, "%d:%s", len(category), category) // a hash takes everything
	}
	return epoch + "." + hex.EncodeToString(digest.Sum(nil)[:8])
}

// TimeOf returns the time of a number of microseconds since 1970, the zero time for 0.
func TimeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
