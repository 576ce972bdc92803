// Package outbound determines which targets must be notified of a changed badge. Targets are
// devices, which get pushes while their apps are closed, and endpoints of webhooks.
//
// A [Notifier] reads the events that the projector has folded, and makes the targets of the
// changed users due. Changes are conflated: if a user changes a hundred times while an endpoint
// is down, one call is due. Senders get the due targets from the Notifier and report the results.
// [Targets] stores the devices and webhooks.
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

// ErrNotFound means that the device or the webhook does not exist.
var ErrNotFound = errors.New("there is no such target")

// ErrChanged means that a webhook was changed after the caller read it.
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

// The values of Registration.Shows, which determines the number on the icon of a device.
const (
	ShowsTotal    = "total"
	ShowsMentions = "mentions"
	// ShowsCategory is the prefix of a category. The device shows the total of this category.
	ShowsCategory = "category:"
	// With ShowsConversations the device shows the number of conversations that add to the total.
	// ShowsConversationsOf is the prefix of a category: the device shows the number of
	// conversations that add to the total of this category.
	ShowsConversations   = "conversations"
	ShowsConversationsOf = "conversations:"
)

// Number returns the number that a device shows for a badge. shows is the value of
// Registration.Shows.
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
