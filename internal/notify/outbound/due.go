package outbound

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// DevicePush is a device that is due, with the number and the alerts for it.
type DevicePush struct {
	Partition        int
	UserID, DeviceID string
	App, Platform    string
	Environment      string
	Shows            string
	Token            []byte
	// Generation and Changes are the values of the device when NextDevices returned it.
	Generation, Changes int64
	// DueAt is when the number changed or, after a failure, when the next attempt is due.
	DueAt, RegisteredAt time.Time
	// Attempts is how many pushes failed since the last one that succeeded.
	Attempts int
	// Badge is at least as new as the change that made the device due. Number is the part of
	// it that the device shows.
	Badge  pubsub.Badge
	Number int64
	// Told is the number in the last push to the device; nil if the number that the device
	// shows is unknown.
	Told *int64
	// Alerts are notifications of messages that are unread and not muted, oldest first, at
	// most MaxAlerts.
	Alerts []Alert
	// Retract are alerts that were sent and whose messages were read or recalled since, at
	// most MaxRetract.
	Retract []AlertName
	// dropped are alerts that will not be sent: read, muted or too old.
	dropped []Alert
	// moreToRetract is set if Retract does not contain all.
	moreToRetract bool
}

// Alert is a notification of a message.
type Alert struct {
	ConversationID string
	Seq            int64
	Title, Body    string
	Data           map[string]string
	QueuedAt       time.Time
}

// AlertName identifies the alert of a message.
type AlertName struct {
	ConversationID string
	Seq            int64
}

// MaxRetract is the most alerts that one push retracts: their names, of 128 characters each,
// must fit into a push. MaxShown is how many of the last alerts of a device can be retracted.
const (
	MaxRetract = 8
	MaxShown   = 50
)

// MaxAlerts is the most alerts that NextDevices returns for a device at a time.
const MaxAlerts = 20

func (p *DevicePush) lane() lane { return lane{p.App, p.Platform} }
func (p *DevicePush) row() row   { return row{p.Partition, p.UserID, p.DeviceID} }

// NextDevices returns up to limit devices of an app and platform that are due and that need a
// push: their number differs from the number in their last push, or they have alerts to show
// or to retract. NextDevices blocks until there is such a device; its only error is the error
// of ctx. Report each device by one call of DeviceTold, DeviceRetry, DeviceHold or DeviceGone.
// Until then NextDevices does not return the device again.
//
// A new epoch makes a device get its number again, since Postgres may have lost what was
// stored about the last push.
func (n *Notifier) NextDevices(ctx context.Context, app, platform string, limit int) ([]DevicePush, error) {
	l := lane{app, platform}
	limit = min(limit, badges.MaxBadges)
	return claim(ctx, n, l, func(partition int, taken []row) ([]DevicePush, error) {
		var due []DevicePush
		err := n.snapshot(ctx, func(tx pgx.Tx) (err error) {
			due, err = n.dueDevices(ctx, tx, l, partition, taken, limit)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the due devices of app %q: %w", app, err)
		}
		rows := make([]row, len(due))
		for i := range due {
			rows[i] = due[i].row()
		}
		n.lanes.take(l, partition, rows, len(due) == limit)
		// Devices that need no push are not given to senders, but are reported here.
		var same []report
		differ := due[:0]
		for i := range due {
			if p := &due[i]; len(p.Alerts) > 0 || len(p.Retract) > 0 || p.differs() {
				differ = append(differ, *p)
			} else {
				same = append(same, report{kind: reportSame, device: *p})
			}
		}
		n.reports.add(same...)
		return differ, nil
	})
}

// differs reports whether the device shows another number than it should.
func (p *DevicePush) differs() bool { return p.Told == nil || *p.Told != p.Number }

// snapshot runs do in a read-only transaction with a single snapshot.
func (n *Notifier) snapshot(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, n.cfg.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, do)
}

func columns(rows []row) (first, last []string) {
	first, last = make([]string, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		first[i], last[i] = r.first, r.last
	}
	return first, last
}

// ownedSince returns when this process first read due devices of a partition that it owns.
func (n *Notifier) ownedSince(ctx context.Context, tx pgx.Tx, partition int) (since time.Time, err error) {
	if since = n.lanes.ownedSince(partition); !since.IsZero() {
		return since, nil
	}
	err = tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&since)
	if err == nil {
		n.lanes.setOwnedSince(partition, since)
	}
	return since, err
}

// dueDevices returns the due devices of a lane, each with the badge of its user. It omits taken
// devices: those that NextDevices returned to a sender, which has not reported them yet.
// Devices and badges are read in one snapshot, that of tx.
func (n *Notifier) dueDevices(ctx context.Context, tx pgx.Tx, l lane, partition int, taken []row, limit int) (due []DevicePush, err error) {
	since, err := n.ownedSince(ctx, tx, partition)
	if err != nil {
		return nil, err
	}
	users, devices := columns(taken)
	rows, _ := tx.Query(ctx, statements.Of(partition, "read due devices"), l.name, l.platform, users, devices, limit, since)
	var epochs []*string
	due, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (DevicePush, error) {
		p := DevicePush{Partition: partition, App: l.name, Platform: l.platform}
		var epoch *string
		err := row.Scan(&p.UserID, &p.DeviceID, &p.Environment, &p.Shows, &p.Token, &p.Generation, &p.RegisteredAt, &p.Changes, &p.DueAt, &p.Attempts, &epoch, &p.Told)
		epochs = append(epochs, epoch)
		return p, err
	})
	if err != nil || len(due) == 0 {
		return nil, err
	}
	ids := make([]string, len(due))
	for i := range due {
		ids[i] = due[i].UserID
	}
	all, err := badges.NewReader(tx, n.cfg.Layouts).Badges(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i := range due {
		p := &due[i]
		p.Badge = all[i]
		p.Number = Number(&all[i], p.Shows)
		if epochs[i] != nil && *epochs[i] != all[i].Epoch {
			p.Told = nil
		}
	}
	if err := n.addAlerts(ctx, tx, partition, due); err != nil {
		return nil, err
	}
	return due, n.addRetractions(ctx, tx, partition, due)
}
