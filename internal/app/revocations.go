package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/badged/badged/gateway"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/httpapi"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/revocation"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/pubsub"
)

// openRevocations reads which tokens are revoked, before any is accepted, and keeps
// up with the tables if this process accepts tokens.
func (a *App) openRevocations(ctx context.Context) error {
	a.revocations = revocations{cluster: a.cluster}
	for _, d := range a.databases {
		list := revocation.New(revocation.Config{
			Ended: func(userIDs []string) { a.ended(userIDs) }, Connected: func() []string { return a.connected() },
			MaxLifetime: a.cfg.JWTMaxLifetime, Logger: d.log, Registerer: d.registry,
		})
		a.revocations.lists = append(a.revocations.lists, list)
		if !a.acceptsTokens() {
			continue
		}
		// The users of a shard that is away have no state to be shown; see knowRevoked.
		if err := list.Load(ctx, d.watching); err != nil && d.Err() == nil {
			return fmt.Errorf("%s: %w", d.config.Label(), err)
		}
		a.stageOf(d, "revocations", list.Run)
	}
	return nil
}

func (a *App) acceptsTokens() bool { return a.cfg.Has(config.RoleAPI) || a.cfg.Has(config.RoleGateway) }

// knowRevoked reads which tokens of users of a shard are revoked, before the shard that
// was away at the start counts as reached: until then none of them gets anything.
func (a *App) knowRevoked(ctx context.Context, index int) error {
	if index >= len(a.revocations.lists) || !a.acceptsTokens() {
		return nil // openRevocations reads them
	}
	return a.revocations.lists[index].Load(ctx, a.databases[index].watching)
}

// revoked reports whether tokens of a user that were issued at a time are revoked.
func (a *App) revoked(userID string, issuedAt time.Time) bool {
	return a.revocations.revoked(userID, issuedAt)
}

// revocations implements gateway.Revocations. A revocation is in the database of its
// user, and in another while the user's partition moves.
type revocations struct {
	lists   []*revocation.List
	cluster *shards.Cluster
}

// Revoked implements gateway.Revocations.
func (r revocations) Revoked(id gateway.Identity) bool { return r.revoked(id.UserID, id.IssuedAt) }

func (r revocations) revoked(userID string, issuedAt time.Time) bool {
	return slices.ContainsFunc(r.lists, func(l *revocation.List) bool { return l.Revoked(userID, issuedAt) })
}

// Look implements gateway.Revocations.
func (r revocations) Look() {
	for _, l := range r.lists {
		l.Look()
	}
}

// of returns the list of a user.
func (r revocations) of(userID string) (*revocation.List, error) {
	i, err := r.cluster.Place(userID)
	if err != nil {
		return nil, err
	}
	return r.lists[i], nil
}

// disconnects implements httpapi.Disconnects.
type disconnects struct {
	listOf      func(userID string) (*revocation.List, error)
	databaseOf  func(userID string) (*database, error)
	bus         pubsub.Bus
	partitionOf func(userID string) int
	log         *slog.Logger
}

// hintTimeout bounds the message to other processes: they look by themselves soon.
const hintTimeout = 500 * time.Millisecond

// futureLeeway is how far the clock of a backend may be ahead of the database's.
const futureLeeway = 5 * time.Second

// Disconnect implements httpapi.Disconnects.
func (d disconnects) Disconnect(ctx context.Context, by, userID string, revoke httpapi.Revoke) (time.Time, error) {
	database, err := d.databaseOf(userID)
	if err != nil {
		return time.Time{}, err
	}
	revokeBefore := revoke.Before
	if revoke != (httpapi.Revoke{}) {
		now, err := pgsession.Now(ctx, database.watching)
		switch {
		case err != nil:
			return time.Time{}, err
		case revoke.Now:
			revokeBefore = now
		case revokeBefore.After(now.Add(futureLeeway)):
			return time.Time{}, httpapi.ErrFuture
		}
	}
	if err := admin.RecordDisconnect(ctx, database.watching, admin.Operator{Name: by, Via: admin.ViaAPI}, userID, revokeBefore); err != nil {
		return time.Time{}, err
	}
	list, err := d.listOf(userID)
	if err != nil {
		return time.Time{}, err
	}
	holds, err := list.End(ctx, userID, revokeBefore)
	if err != nil {
		return time.Time{}, err
	}
	// It is committed, so that a gateway that looks after this message finds it.
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	hint := pubsub.Update{Badge: pubsub.Badge{UserID: userID}, Partition: d.partitionOf(userID), Ended: true}
	if err := d.bus.Publish(ctx, []pubsub.Update{hint}); err != nil {
		d.log.WarnContext(ctx, "gateways were not told to disconnect a user and find out by themselves", "error", err)
	}
	return holds, nil
}
