package badges

import (
	"encoding/json"
	"fmt"

	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/pubsub"
)

// badgeTargets returns the scan targets for the columns of a badge.
func badgeTargets(b *pubsub.Badge) []any {
	return []any{&b.Epoch, &b.Version, &b.Total, &b.Mentions, (*paths)(b), &b.UnreadConversations, (*extra)(b), (*levels)(b)}
}

// paths scans the JSON object of a user's paths, which is null in a row without a badge.
type paths pubsub.Badge

// Scan implements sql.Scanner.
func (b *paths) Scan(src any) error {
	b.Categories, b.Levels = nil, nil
	if src == nil {
		return nil
	}
	stored, ok := src.(string)
	if !ok {
		return fmt.Errorf("a JSON object has type %T, want string", src)
	}
	b.Categories = map[string]pubsub.Numbers{}
	return badge.EachStored(stored, func(name string, n pubsub.Numbers, level string) {
		if n != (pubsub.Numbers{}) {
			b.Categories[name] = n
		}
		if level != "" {
			if b.Levels == nil {
				b.Levels = map[string]string{}
			}
			b.Levels[name] = level
		}
	})
}

// levels scans the JSON object with the levels of a user whose paths have rows. Scan it after
// paths, since scanning paths clears the levels.
type levels pubsub.Badge

// Scan implements sql.Scanner.
func (b *levels) Scan(src any) error {
	if src == nil {
		return nil
	}
	return scanJSON(src, &b.Levels)
}

// extra scans the numbers of a badge that have no column of their own. Scan it after the
// total.
type extra pubsub.Badge

// Scan implements sql.Scanner.
func (b *extra) Scan(src any) error {
	text, _ := src.(string)
	return badge.DecodeExtra(text, &b.Numbers)
}

func scanJSON(src, to any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("a JSON object has type %T, want string", src)
	}
	return json.Unmarshal([]byte(text), to)
}
