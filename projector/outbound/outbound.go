// Package outbound finds out who must be told of a changed badge beside the sockets:
// devices that get pushes, and endpoints of webhooks.
//
// A [Notifier] reads the log behind the projector and makes targets due, conflated:
// a user who changes a hundred times while an endpoint is down is one row. Senders
// take what is due from it and report what became of it. [Targets] are the devices
// and webhooks themselves.
//
// It does not know HTTP or vendors. ADR 65 explains the queue of devices,
// ADR 139 that of webhooks.
package outbound

import (
	_ "embed"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/sqlfile"
	"github.com/badged/badged/pubsub"
)

//go:embed outbound.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// ErrNotFound is returned if there is no such device or webhook.
var ErrNotFound = errors.New("there is no such target")

// ErrChanged is returned if a webhook is not the one that was read.
var ErrChanged = errors.New("the webhook was changed meanwhile")

// Targets are the devices and webhooks of a database. It is safe for concurrent use.
type Targets struct {
	pool    *pgxpool.Pool
	layouts events.Layouts
}

// NewTargets returns the targets of a database, where users are as layouts says.
func NewTargets(pool *pgxpool.Pool, layouts events.Layouts) *Targets {
	return &Targets{pool: pool, layouts: layouts}
}

// What a device may show.
const (
	ShowsTotal    = "total"
	ShowsMentions = "mentions"
	// ShowsCategory is the prefix of a category.
	ShowsCategory = "category:"
	// ShowsConversations counts the conversations that add to the total instead, and
	// as the prefix of a category ShowsConversationsOf those of the category.
	ShowsConversations   = "conversations"
	ShowsConversationsOf = "conversations:"
)

// Number returns what a device shows of a badge.
func Number(b *pubsub.Badge, shows string) int64 {
	if category, ok := strings.CutPrefix(shows, ShowsCategory); ok {
		return b.Categories[category].Total
	}
	if category, ok := strings.CutPrefix(shows, ShowsConversationsOf); ok {
		return b.Categories[category].UnreadConversations
	}
	switch shows {
	case ShowsMentions:
		return b.Mentions
	case ShowsConversations:
		return b.UnreadConversations
	}
	return b.Total
}
