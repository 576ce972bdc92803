package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/gateway"
	"github.com/badged/badged/internal/admin"
	"github.com/badged/badged/internal/config"
	"github.com/badged/badged/internal/revocation"
	"github.com/badged/badged/pubsub"
)

// openRevocations reads which tokens are revoked, before any is accepted, and keeps
// up with the table if this process accepts tokens.
func (a *App) openRevocations(ctx context.Context, pool *pgxpool.Pool) error {
	if !a.cfg.Has(config.RoleAPI) && !a.cfg.Has(config.RoleGateway) {
		return nil
	}
	if err := a.revocations.Load(ctx, pool); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	a.stage("revocations", a.revocations.Run)
	return nil
}

// revocations implements gateway.Revocations.
type revocations struct{ *revocation.List }

// Revoked implements gateway.Revocations.
func (r revocations) Revoked(id gateway.Identity) bool {
	return r.List.Revoked(id.UserID, id.IssuedAt)
}

// disconnects implements httpapi.Disconnects.
type disconnects struct {
	pool        *pgxpool.Pool
	list        *revocation.List
	bus         pubsub.Bus
	partitionOf func(userID string) int
	log         *slog.Logger
}

// hintTimeout bounds the message to other processes: they look by themselves soon.
const hintTimeout = 500 * time.Millisecond

// Disconnect implements httpapi.Disconnects.
func (d disconnects) Disconnect(ctx context.Context, by, userID string, revokeBefore time.Time) (time.Time, error) {
	if err := admin.RecordDisconnect(ctx, d.pool, admin.Operator{Name: by, Via: admin.ViaAPI}, userID, revokeBefore); err != nil {
		return time.Time{}, err
	}
	holds, err := d.list.End(ctx, userID, revokeBefore)
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
