package outbound

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// DevicePush is what a device must be told.
type DevicePush struct {
	Partition        int
	UserID, DeviceID string
	App, Platform    string
	Environment      string
	Shows            string
	Token            []byte
	// Generation and Changes are those of the device when it was taken.
	Generation, Changes int64
	// DueAt is when the number changed or, after a failure, when it is to be told again.
	DueAt, RegisteredAt time.Time
	// Attempts is how many pushes failed since the last that succeeded.
	Attempts int
	// Badge is newer than the change that made the device due, and Number what the
	// device shows of it.
	Badge  pubsub.Badge
	Number int64
	// Told is the number that the device was last told; nil if that is not known.
	Told *int64
	// Alerts are still unread and not muted, oldest first. At most MaxAlerts.
	Alerts []Alert
	// Retract are alerts that were sent and whose messages have been read or recalled
	// since. At most MaxRetract.
	Retract []AlertName
	// dropped are alerts that are read or muted, or too old.
	dropped []Alert
	// moreToRetract is set if Retract lacks some.
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

// AlertName names the alert of a message.
type AlertName struct {
	ConversationID string
	Seq            int64
}

// MaxRetract is the most alerts that a device is told to remove at a time: their names,
// of 128 characters each, have to fit into a push. MaxShown is how many of the last alerts
// are remembered for it.
const (
	MaxRetract = 8
	MaxShown   = 50
)

// MaxAlerts is the most alerts that a device is told at a time.
const MaxAlerts = 20

func (p *DevicePush) lane() lane { return lane{p.App, p.Platform} }
func (p *DevicePush) row() row   { return row{p.Partition, p.UserID, p.DeviceID} }

// NextDevices takes up to limit devices of an app and platform that are due and whose
// number differs from what they were told, or that have an alert. It waits until there
// is one; the only error is that of ctx. Report what became of each by one call of
// DeviceTold, DeviceRetry, DeviceHold or DeviceGone: until then it is not taken again.
//
// A device is also told its number again in a new epoch, since what is stored of the
// last push may be lost.
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
		// What need not be told is no work for senders, but is taken as well.
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

// differs reports whether a device shows something else than it should.
func (p *DevicePush) differs() bool { return p.Told == nil || *p.Told != p.Number }

// snapshot reads in a transaction with one snapshot.
func (n *Notifier) snapshot(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, n.cfg.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, do)
}

// columns splits rows into two arrays.
func columns(rows []row) (first, last []string) {
	first, last = make([]string, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		first[i], last[i] = r.first, r.last
	}
	return first, last
}

// ownedSince returns when this process first took from a partition.
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

// dueDevices returns the due devices of a lane without those that are taken, with
// numbers of the same snapshot.
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
