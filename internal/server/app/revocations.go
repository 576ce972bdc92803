package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/badged/badged/gateway"
	"github.com/badged/badged/internal/operations"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/httpapi"
	"github.com/badged/badged/internal/server/revocation"
	"github.com/badged/badged/pubsub"
)

// loadPatience limits how long the start of the server waits until revocations are read. After
// that, the server reads the remaining revocations while it serves requests.
const loadPatience = 2 * time.Second

// openRevocations creates the list of revoked tokens of each database. If this process accepts
// tokens, it also reads the lists, and adds the stages that read new revocations and delete old
// revocations. Until all revocations of a database are read, this process refuses the tokens of all
// users of this database.
func (a *App) openRevocations(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	for _, d := range a.databases {
		list := revocation.New(d.watching, revocation.Config{
			Ended: func(userIDs []string) { a.ended(userIDs) }, Connected: func() []string { return a.connected() },
			MaxLifetime: a.cfg.JWTMaxLifetime, Logger: d.log, Registerer: d.registry,
		})
		d.revoked = list
		if !a.acceptsTokens() {
			continue
		}
		if d.Err() == nil {
			if err := list.Load(ctx); err != nil {
				d.log.WarnContext(ctx, "cannot read all revoked tokens yet; until then, tokens are refused", "error", err)
			}
		}
		a.stageOf(d, "revocations", list.Run)
		a.stageOf(d, "forgetting revocations", list.RunForgetting)
	}
}

func (a *App) acceptsTokens() bool { return a.cfg.Has(config.RoleAPI) || a.cfg.Has(config.RoleGateway) }

// unread returns an error while this process does not know all revocations in the database of a
// user: at the start, or because the database cannot be read any more.
func (a *App) unread(userID string) error {
	d, err := a.databaseOf(userID)
	if err != nil {
		return err
	}
	return d.revoked.Check()
}

// checkRevocations is the readiness check of revocations.
func (a *App) checkRevocations(context.Context) error {
	return a.checkEach(func(d *database) error { return d.revoked.Check() })
}

// revoked reports whether tokens that were issued to a user at the given time are revoked.
func (a *App) revoked(userID string, issuedAt time.Time) bool {
	return revocations(a.databases).revoked(userID, issuedAt)
}

// revocations implements gateway.Revocations. It checks every database: while a user's partition
// moves from one database to another, either database may have the revocation.
type revocations []*database

// Revoked implements gateway.Revocations.
func (r revocations) Revoked(id gateway.Identity) bool { return r.revoked(id.UserID, id.IssuedAt) }

func (r revocations) revoked(userID string, issuedAt time.Time) bool {
	return slices.ContainsFunc(r, func(d *database) bool { return d.revoked.Revoked(userID, issuedAt) })
}

// Look implements gateway.Revocations.
func (r revocations) Look() {
	for _, d := range r {
		d.revoked.Look()
	}
}

// disconnects implements httpapi.Disconnects.
type disconnects struct {
	databaseOf  func(userID string) (*database, error)
	bus         pubsub.Bus
	partitionOf func(userID string) int
	log         *slog.Logger
}

// hintTimeout limits the time for notifying other processes of a revocation. If the
// notification of a process is lost, this process finds the revocation when it polls the table.
const hintTimeout = 500 * time.Millisecond

// futureLeeway is how far the time in a request to revoke tokens may be ahead of the clock of the
// database, since the clock of a backend may be fast.
const futureLeeway = 5 * time.Second

// disconnectPatience limits the time in which a request stores a revocation and reads it back.
// Since the later notification takes at most hintTimeout, a request is answered within 3 s.
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
	if err := operations.RecordDisconnect(ctx, database.watching, operations.Operator{Name: by, Via: operations.ViaAPI}, userID, revokeBefore); err != nil {
		return time.Time{}, err
	}
	if database, err = d.databaseOf(userID); err != nil { // the user's partition may have moved meanwhile
		return time.Time{}, err
	}
	holds, err := database.revoked.End(ctx, userID, revokeBefore)
	unread := errors.As(err, new(*revocation.PartialReadError))
	if err != nil && !unread {
		return time.Time{}, err
	}
	// Publish only after the commit, so that a gateway that receives the message can read the row.
	hinting, cancel := context.WithTimeout(requested, hintTimeout)
	defer cancel()
	hint := pubsub.Update{Badge: pubsub.Badge{UserID: userID}, Partition: d.partitionOf(userID), Ended: true}
	if err := d.bus.Publish(hinting, []pubsub.Update{hint}, nil); err != nil {
		d.log.WarnContext(ctx, "cannot notify gateways to disconnect a user; they will read it from the table", "error", err)
	}
	if unread {
		return time.Time{}, fmt.Errorf("%w: %w", httpapi.ErrNotInForce, err)
	}
	return holds, nil
}
