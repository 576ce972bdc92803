package badges

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/pubsub"
)

// Filter selects conversations of a user.
type Filter struct {
	// Within, if not nil, selects conversations that at least one of these categories covers.
	// Category, if not "", selects conversations that this category covers.
	Within   []string
	Category string
	// Unread selects conversations that have unread messages or a mark.
	Unread bool
	// Muted, if not nil, selects conversations by the effect of their level on the total. If *Muted
	// is true, it selects conversations whose level excludes unread messages or the mark. If *Muted
	// is false, it selects conversations that add something to the total.
	Muted *bool
}

// Conversations returns a page of a user's conversations, most recently changed first, and the
// cursor of the next page, "" after the last page. A message to a room writes no row of a
// member, so it does not change the order. A conversation that changes between two calls moves
// to the front, so it is not in later pages. limit is 1 to MaxPage. The error is ErrBadCursor
// for an invalid cursor.
func (r *Reader) Conversations(ctx context.Context, userID string, f Filter, limit int, cursor string) ([]pubsub.Conversation, string, error) {
	// The position before the first row: versions descend.
	version, conversationID := int64(1<<63-1), ""
	if cursor != "" {
		var err error
		if version, conversationID, err = parseCursor(cursor); err != nil {
			return nil, "", err
		}
	}
	p := r.partitionOf(userID)
	sql, ofMember := statements.Of(p, "read a page"), statements.Of(p, "read a page of a member")
	if f.Unread {
		sql, ofMember = statements.Of(p, "read an unread page"), statements.Of(p, "read an unread page of a member")
	}
	sql = strings.NewReplacer("CATEGORY", "c.category", "UNREAD", "c.unread", "MENTIONS", "c.mentions", "NAMED", "c.mentions").Replace(sql)
	ofMember = strings.NewReplacer("CATEGORY", "coalesce(r.category, c.category)", "UNREAD", "("+statements.Of(p, "unread")+")", "MENTIONS", "("+statements.Of(p, "mentions")+")",
		"NAMED", "CASE WHEN c.joined IS NULL THEN c.mentions ELSE coalesce(c.named, 0) END").Replace(ofMember)
	var covering *string
	if f.Category != "" {
		covering = &f.Category
	}
	list, err := r.conversations(ctx, sql, firstPaths(ofMember, noPaths), userID, p, version, conversationID, limit+1, f.Within, covering, f.Muted)
	if err != nil {
		return nil, "", fmt.Errorf("read the conversations of user %q: %w", userID, err)
	}
	next := ""
	if len(list) > limit {
		list = list[:limit]
		next = formatCursor(list[limit-1].stored, list[limit-1].ConversationID)
	}
	page := make([]pubsub.Conversation, len(list))
	for i := range list {
		page[i] = list[i].Conversation
	}
	return page, next, nil
}

// Categories returns a page of the categories of a user, sorted by name, and the cursor of the next
// page, "" after the last page. It includes categories that have a level but no numbers. If parent
// is not empty, it returns only this category and the categories directly below it. If `within` is
// not nil, it returns only categories that a category in `within` covers. The error is ErrBadCursor
// for an invalid cursor.
func (r *Reader) Categories(ctx context.Context, userID string, within []string, parent string, limit int, cursor string) (page []Category, next string, err error) {
	after := ""
	if cursor != "" {
		name, err := base64.RawURLEncoding.DecodeString(cursor)
		if after = string(name); err != nil || events.CheckCategory(after) != "" {
			return nil, "", ErrBadCursor
		}
	}
	all, err := r.Badges(ctx, []string{userID})
	if err != nil {
		return nil, "", err
	}
	b := &all[0]
	for path := range b.Levels {
		if _, ok := b.Categories[path]; !ok {
			b.Categories[path] = pubsub.Numbers{}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(b.Categories)) {
		switch {
		case path <= after, parent != "" && path != parent && category.Above(path) != parent, within != nil && !category.AnyCovers(within, path):
			continue
		case len(page) == limit:
			return page, base64.RawURLEncoding.EncodeToString([]byte(page[limit-1].Category)), nil
		}
		page = append(page, Category{path, b.Categories[path], b.Levels[path]})
	}
	return page, "", nil
}

// Category is a category of a user.
type Category struct {
	Category string `json:"category" doc:"The category: a path whose parts are separated by slashes."`
	pubsub.Numbers
	Level string `json:"level,omitempty" enum:"all,mentions,direct_mentions,none" doc:"The level that was set for the category; absent if it has none."`
}

func formatCursor(version int64, conversationID string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(version, 10) + ":" + conversationID))
}

func parseCursor(cursor string) (version int64, conversationID string, err error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, "", ErrBadCursor
	}
	text, conversationID, ok := strings.Cut(string(b), ":")
	if !ok {
		return 0, "", ErrBadCursor
	}
	if version, err = strconv.ParseInt(text, 10, 64); err != nil || events.CheckID(conversationID) != "" {
		return 0, "", ErrBadCursor
	}
	return version, conversationID, nil
}
