package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/gateway"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/httpapi"
	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/revocation"
	"github.com/badged/badged/internal/shards"
	"github.com/badged/badged/pubsub"
)

// loadPatience is how long a server waits at its start for what is revoked. It reads the rest
// while it serves.
const loadPatience = 2 * time.Second

// openRevocations reads which tokens are revoked, and keeps up with the tables, if this
// process accepts tokens. It accepts none of a user before it has read all of the database
// of the user.
func (a *App) openRevocations(ctx context.Context) {
	a.revocations = revocations{cluster: a.cluster}
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	for _, d := range a.databases {
		list := revocation.New(d.watching, revocation.Config{
			Ended: func(userIDs []string) { a.ended(userIDs) }, Connected: func() []string { return a.connected() },
			MaxLifetime: a.cfg.JWTMaxLifetime, Logger: d.log, Registerer: d.registry,
		})
		a.revocations.lists = append(a.revocations.lists, list)
		if !a.acceptsTokens() {
			continue
		}
		if d.Err() == nil {
			if err := list.Load(ctx); err != nil {
				d.log.WarnContext(ctx, "not all revoked tokens are read yet; until they are, tokens are refused", "error", err)
			}
		}
		a.stageOf(d, "revocations", list.Run)
		a.stageOf(d, "forgetting revocations", list.RunForgetting)
	}
}

func (a *App) acceptsTokens() bool { return a.cfg.Has(config.RoleAPI) || a.cfg.Has(config.RoleGateway) }

// unread returns why it is not known which tokens of a user are revoked, or nil.
func (a *App) unread(userID string) error {
	list, err := a.revocations.of(userID)
	if err != nil {
		return err
	}
	return list.Check()
}

// checkRevocations is the readiness check of what is revoked. A shard of which it is not known
// is only an impairment while there is another.
func (a *App) checkRevocations(context.Context) error {
	var texts []string
	for i, list := range a.revocations.lists {
		if err := list.Check(); err != nil && a.cluster.Sharded() {
			texts = append(texts, fmt.Sprintf("shard %s: %v", a.databases[i].config.Name, err))
		} else if err != nil {
			texts = append(texts, err.Error())
		}
	}
	switch text := strings.Join(texts, "; "); len(texts) {
	case 0:
		return nil
	case len(a.revocations.lists):
		return errors.New(text)
	default:
		return obs.Impaired(text)
	}
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

// disconnectPatience bounds what is stored and read for a request. With the message to other
// processes it is answered within three seconds.
const disconnectPatience = 2 * time.Second

// Disconnect implements httpapi.Disconnects.
func (d disconnects) Disconnect(requested context.Context, by, userID string, revoke httpapi.Revoke) (time.Time, error) {
	ctx, cancel := context.WithTimeout(requested, disconnectPatience)
	defer cancel()
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
	unread := errors.As(err, new(*revocation.PartialReadError))
	if err != nil && !unread {
		return time.Time{}, err
	}
	// It is committed, so that a gateway that looks after this message finds it.
	hinting, cancel := context.WithTimeout(requested, hintTimeout)
	defer cancel()
	hint := pubsub.Update{Badge: pubsub.Badge{UserID: userID}, Partition: d.partitionOf(userID), Ended: true}
	if err := d.bus.Publish(hinting, []pubsub.Update{hint}); err != nil {
		d.log.WarnContext(ctx, "gateways were not told to disconnect a user and find out by themselves", "error", err)
	}
	if unread {
		return time.Time{}, fmt.Errorf("%w: %w", httpapi.ErrNotInForce, err)
	}
	return holds, nil
}
