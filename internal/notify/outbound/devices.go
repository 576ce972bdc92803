package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/log/eventlog"
)

// MaxDevices is the maximum number of devices of a user.
const MaxDevices = 100

// ErrTooManyDevices means that a user already has MaxDevices devices.
var ErrTooManyDevices = fmt.Errorf("the user has %d devices already: delete those that are not in use", MaxDevices)

// Registration has the data that an app registers for its device.
type Registration struct {
	UserID, DeviceID string
	// App is the name of an entry in the configuration of pushes.
	App, Platform, Environment string
	// Shows is ShowsTotal, ShowsMentions or ShowsConversations, or a category with the prefix
	// ShowsCategory or ShowsConversationsOf.
	Shows string
	// Token is the device token or the Web Push subscription. It is a secret, and may be sealed
	// (encrypted).
	Token []byte
	// Fingerprint is a SHA-256 hash that is the same for all spellings of the token.
	Fingerprint []byte
}

// Device is a registered device.
type Device struct {
	Registration
	// Generation is a new number for each registration.
	Generation   int64
	RegisteredAt time.Time
	// Due is the earliest time at which the device may need a push; nil if it needs no push.
	Due *time.Time
	// Told is the number in the last push. ToldVersion and ToldEpoch are the version and epoch of
	// the badge in this push, and ToldAt is the time of the push. All four are nil if the device
	// has got no push since its token or settings last changed. Told is also nil if the icon may
	// show another number now, for example because the app was open after the push.
	Told, ToldVersion *int64
	ToldEpoch         *string
	ToldAt            *time.Time
	// Before QuietUntil only alerts are pushed. Before HeldUntil nothing is pushed.
	QuietUntil, HeldUntil *time.Time
	// Attempts is the number of pushes that failed since the last success.
	Attempts    int
	LastError   *string
	LastErrorAt *time.Time
}

func (d *Device) targets() []any {
	return []any{
		&d.UserID, &d.DeviceID, &d.App, &d.Platform, &d.Environment, &d.Shows, &d.Token, &d.Fingerprint,
		&d.Generation, &d.RegisteredAt, &d.Due, &d.Told, &d.ToldVersion, &d.ToldEpoch, &d.ToldAt, &d.QuietUntil, &d.HeldUntil,
		&d.Attempts, &d.LastError, &d.LastErrorAt,
	}
}

// PutDevice registers a device, or registers it again. It makes the device due if the device is
// new, if its token or settings have changed, or if the last push failed. A token belongs to one
// device: PutDevice deletes other devices with the token. It fails with [ErrTooManyDevices], or
// with eventlog.ErrRevoked if the access token in ctx was revoked. created is true if the device
// was not registered before.
func (t *Targets) PutDevice(ctx context.Context, r Registration) (created bool, err error) {
	partition := t.layouts.Layout().PartitionOf(r.UserID)
	var batch pgx.Batch
	// The first statement acquires locks, so that registrations of one user, or of one device
	// token, run one after the other.
	batch.Queue(statements.Get("serialize registrations"), r.UserID, r.Fingerprint)
	batch.Queue(statements.Of(partition, "take the token from other devices"), r.Fingerprint, r.UserID, r.DeviceID, MaxDevices)
	tooMany := false
	batch.Queue(statements.Of(partition, "register a device"), partition, r.UserID, r.DeviceID,
		r.App, r.Platform, r.Environment, r.Shows, r.Token, r.Fingerprint, MaxDevices).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&created)
		if tooMany = errors.Is(err, pgx.ErrNoRows); tooMany {
			return nil
		}
		return err
	})
	if err = t.write(ctx, &batch); err == nil && tooMany {
		err = ErrTooManyDevices
	}
	if err != nil {
		return false, fmt.Errorf("register device %q of user %q: %w", r.DeviceID, r.UserID, err)
	}
	return created, nil
}

// write sends a batch, which Postgres runs as one transaction. It fails if the access token in
// ctx was revoked.
func (t *Targets) write(ctx context.Context, batch *pgx.Batch) error {
	if err := eventlog.QueueRights(ctx, batch); err != nil {
		return err
	}
	return eventlog.Revoked(t.pool.SendBatch(ctx, batch).Close())
}

// Device returns a device, or [ErrNotFound].
func (t *Targets) Device(ctx context.Context, userID, deviceID string) (Device, error) {
	var d Device
	err := t.pool.QueryRow(ctx, statements.Of(t.layouts.Layout().PartitionOf(userID), "read a device"), userID, deviceID).Scan(d.targets()...)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Device{}, fmt.Errorf("read device %q of user %q: %w", deviceID, userID, err)
	}
	return d, nil
}

// Devices returns the devices of a user, sorted by id.
func (t *Targets) Devices(ctx context.Context, userID string) ([]Device, error) {
	rows, _ := t.pool.Query(ctx, statements.Of(t.layouts.Layout().PartitionOf(userID), "list devices"), userID)
	devices, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d Device, err error) { return d, row.Scan(d.targets()...) })
	if err != nil {
		return nil, fmt.Errorf("list the devices of user %q: %w", userID, err)
	}
	return devices, nil
}

// DeleteDevice deletes a device and its queued alerts. It returns [ErrNotFound] if the device
// does not exist.
func (t *Targets) DeleteDevice(ctx context.Context, userID, deviceID string) error {
	var batch pgx.Batch
	found := false
	batch.Queue(statements.Of(t.layouts.Layout().PartitionOf(userID), "delete a device"), userID, deviceID).Exec(func(tag pgconn.CommandTag) error {
		found = tag.RowsAffected() > 0
		return nil
	})
	err := t.write(ctx, &batch)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("delete device %q of user %q: %w", deviceID, userID, err)
	}
	return nil
}

// DeviceName names a device of a user.
type DeviceName struct{ UserID, DeviceID string }

// HoldDevices prevents pushes to devices whose apps are connected to a gateway, for the duration
// `lease`. holder is the name of the gateway. A lease of 0 ends the present leases of this gateway
// at once; leases of other gateways continue. HoldDevices ignores devices that are not registered.
func (t *Targets) HoldDevices(ctx context.Context, holder string, names []DeviceName, lease time.Duration) error {
	byPartition := map[int][]DeviceName{}
	for _, n := range names {
		p := t.layouts.Layout().PartitionOf(n.UserID)
		byPartition[p] = append(byPartition[p], n)
	}
	for p, some := range byPartition {
		// Sort by the columns of the index: all transactions lock rows in this order.
		slices.SortFunc(some, func(a, b DeviceName) int {
			return cmp.Or(cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.DeviceID, b.DeviceID))
		})
		users, devices := make([]string, len(some)), make([]string, len(some))
		for i, n := range some {
			users[i], devices[i] = n.UserID, n.DeviceID
		}
		var err error
		if lease > 0 {
			_, err = t.pool.Exec(ctx, statements.Of(p, "hold connected devices"), users, devices, lease, holder)
		} else {
			err = t.release(ctx, p, holder, users, devices)
		}
		if err != nil {
			return fmt.Errorf("record that %d devices are connected: %w", len(some), err)
		}
	}
	return nil
}

func (t *Targets) release(ctx context.Context, partition int, holder string, users, devices []string) error {
	return pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Of(partition, "lock devices"), users, devices); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statements.Of(partition, "release devices"), users, devices, holder)
		return err
	})
}
