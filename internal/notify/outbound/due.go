package outbound

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// DevicePush is a device that is due, with the number and the alerts to send to it.
type DevicePush struct {
	Partition        int
	UserID, DeviceID string
	App, Platform    string
	Environment      string
	Shows            string
	Token            []byte
	// Generation and Changes are the values in the device's row when NextDevices read it.
	Generation, Changes int64
	// DueAt is the time at which the device became due or, after a failed push, the time of the
	// next attempt.
	DueAt, RegisteredAt time.Time
	// Attempts is the number of pushes that failed since the last success.
	Attempts int
	// Badge is the current badge of the user; it includes the change that made the device due.
	// Number is the number in Badge that the device must show: see [Number].
	Badge  pubsub.Badge
	Number int64
	// Told is the number in the last push to the device. It is nil if the device may show another
	// number now, for example because the app was open afterwards or a later push failed.
	Told *int64
	// Alerts are notifications of messages that are unread and not muted, oldest first. If there
	// are more than MaxAlerts, it has the oldest MaxAlerts.
	Alerts []Alert
	// Retract names up to MaxRetract alerts that the device shows although their messages were read
	// or recalled afterwards.
	Retract []AlertName
	// dropped are alerts that will not be sent, because their messages were read or are muted, or
	// because the alerts are too old.
	dropped []Alert
	// moreToRetract is true if there are more alerts to retract than Retract has.
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

// MaxRetract is the maximum number of alerts that one push retracts: the names of the alerts, which
// may have 128 characters each, must fit into the push. Only the newest MaxShown alerts that a
// device shows can be retracted.
const (
	MaxRetract = 8
	MaxShown   = 50
)

// MaxAlerts is the maximum number of alerts that NextDevices returns for a device.
const MaxAlerts = 20

func (p *DevicePush) queueKey() queueKey { return queueKey{p.App, p.Platform} }
func (p *DevicePush) row() row           { return row{p.Partition, p.UserID, p.DeviceID} }

// NextDevices returns up to limit devices of an app and platform that are due and need a push: the
// number to show differs from the number in the last push, or there are alerts to show or to
// retract. NextDevices blocks until there is such a device; the only error is the error of ctx. For
// each device, report the result with one of DeviceTold, DeviceRetry, DeviceHold and DeviceGone.
// Before this report, NextDevices does not return the device again.
//
// If the epoch of the badge differs from the epoch of the last push, the device gets its number
// again, because Postgres may have lost what was stored about the last push.
func (n *Notifier) NextDevices(ctx context.Context, app, platform string, limit int) ([]DevicePush, error) {
	l := queueKey{app, platform}
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
		n.queues.start(l, partition, rows, len(due) == limit)
		// Do not return devices that need no push: report at once that they are not due.
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

// differs reports whether the device shows, or may show, another number than Number.
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

// ownedSince returns the time on the clock of Postgres when this process first read due devices
// of a partition that it owns. If this is the first read, it stores the time in queues.firstRead.
func (n *Notifier) ownedSince(ctx context.Context, tx pgx.Tx, partition int) (since time.Time, err error) {
	if since = n.queues.ownedSince(partition); !since.IsZero() {
		return since, nil
	}
	err = tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&since)
	if err == nil {
		n.queues.setOwnedSince(partition, since)
	}
	return since, err
}

// dueDevices returns the due devices of a queue, each with the badge of its user. It omits the
// devices in taken, which senders are processing. All queries of tx see the same snapshot, so
// each badge includes the change that made the device due.
func (n *Notifier) dueDevices(ctx context.Context, tx pgx.Tx, l queueKey, partition int, taken []row, limit int) (due []DevicePush, err error) {
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
