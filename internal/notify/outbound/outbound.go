// Package outbound determines which targets must be notified of a changed badge without an
// open app: devices that get pushes, and endpoints of webhooks.
//
// A [Notifier] reads the log behind the projector and makes targets due. Changes are
// conflated: a user who changes a hundred times while an endpoint is down is one row. Senders
// get from the Notifier what is due, and report the result. [Targets] stores the devices and
// webhooks.
//
// The package does not know HTTP or vendors. ADR 65 explains the queue of devices, ADR 139 the
// queue of webhooks.
package outbound

import (
	_ "embed"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/pg/sqlfile"
	"github.com/badged/badged/pubsub"
)

//go:embed outbound.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// ErrNotFound is returned if there is no such device or webhook.
var ErrNotFound = errors.New("there is no such target")

// ErrChanged is returned if a webhook was changed since it was read.
var ErrChanged = errors.New("the webhook was changed meanwhile")

// Targets stores the devices and webhooks of a database. It is safe for concurrent use.
type Targets struct {
	pool    *pgxpool.Pool
	layouts events.Layouts
}

// NewTargets returns the targets of a database. layouts returns the partitions of users.
func NewTargets(pool *pgxpool.Pool, layouts events.Layouts) *Targets {
	return &Targets{pool: pool, layouts: layouts}
}

// What the icon of a device may show.
const (
	ShowsTotal    = "total"
	ShowsMentions = "mentions"
	// ShowsCategory is the prefix of a category: the device shows the total of the category.
	ShowsCategory = "category:"
	// ShowsConversations shows how many conversations add to the total. ShowsConversationsOf
	// is the prefix of a category: the device shows this number for the category.
	ShowsConversations   = "conversations"
	ShowsConversationsOf = "conversations:"
)

// Number returns the number of a badge that a device shows.
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
