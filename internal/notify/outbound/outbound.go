// Package outbound determines which targets must be notified of a changed badge. Targets are
// devices, which get pushes while their apps are closed, and endpoints of webhooks.
//
// A [Notifier] reads the events that the projector has folded, and makes targets due. Changes are
// conflated: if a user changes a hundred times while an endpoint is down, one row is due. Senders
// get the due targets from the Notifier and report the result. [Targets] stores the devices and
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

// The values of Registration.Shows: the number that the icon of a device shows.
const (
	ShowsTotal    = "total"
	ShowsMentions = "mentions"
	// ShowsCategory is the prefix of a category. The device shows the total of this category.
	ShowsCategory = "category:"
	// ShowsConversations is the number of conversations that add to the total.
	// ShowsConversationsOf is the prefix of a category: the device shows this number for the
	// category.
	ShowsConversations   = "conversations"
	ShowsConversationsOf = "conversations:"
)

// Number returns the number that a device shows for a badge. shows is the device's setting.
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
