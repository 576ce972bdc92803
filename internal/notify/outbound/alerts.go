package outbound

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/badges"
)

// alertRow is the notification of a message for one user. In changes.posts, an alertRow is instead
// the notification for all members of a room; alertRow.user is then the sender of the message, who
// gets no notification.
type alertRow struct {
	user      string
	mentions  bool
	createdAt time.Time
	data      *events.Data
}

// alertArgs returns rows as arguments of a statement: one array for each column, then the present
// time on the clock of this process, and the maximum age of an alert. The statement skips older
// alerts.
func alertArgs(rows []alertRow) []any {
	n := len(rows)
	users, conversations, titles, bodies, data := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	seqs, mentions, at := make([]int64, n), make([]bool, n), make([]time.Time, n)
	for i, r := range rows {
		users[i], conversations[i], seqs[i], mentions[i], at[i] = r.user, r.data.ConversationID, r.data.Seq, r.mentions, r.createdAt
		titles[i], bodies[i] = r.data.Notification.Title, r.data.Notification.Body
		if len(r.data.Notification.Data) > 0 {
			text, _ := json.Marshal(r.data.Notification.Data) // strings can always be encoded
			data[i] = string(text)
		}
	}
	return []any{users, conversations, seqs, mentions, titles, bodies, data, at, time.Now(), maxAlertAge}
}

// alerts stores the notifications `rows`, each for all devices of its user, and makes these devices
// due, so that senders push to them.
func (m *marking) alerts(ctx context.Context, rows []alertRow) error {
	if len(rows) == 0 {
		return nil
	}
	// Find the users with devices first: a notification may be for 10,000 users, and few of them
	// have devices.
	users := make([]string, len(rows))
	for i := range rows {
		users[i] = rows[i].user
	}
	found, _ := m.tx.Query(ctx, statements.Of(m.partition, "find users with devices"), sortedUnique(users))
	with, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		return err
	}
	has := make(map[string]struct{}, len(with))
	for _, u := range with {
		has[u] = struct{}{}
	}
	rows = slices.DeleteFunc(rows, func(r alertRow) bool { _, ok := has[r.user]; return !ok })
	if len(rows) == 0 {
		return nil
	}
	return m.mark(ctx, new(int64), statements.Of(m.partition, "add alerts"), append([]any{m.partition}, alertArgs(rows)...)...)
}

// addAlerts reads the stored alerts of each device in due. It adds an alert to DevicePush.dropped
// if the alert is too old or if its message does not count as unread any more, and otherwise to
// DevicePush.Alerts.
func (n *Notifier) addAlerts(ctx context.Context, tx pgx.Tx, partition int, due []DevicePush) error {
	users, devices := make([]string, len(due)), make([]string, len(due))
	for i := range due {
		users[i], devices[i] = due[i].UserID, due[i].DeviceID
	}
	var messages []badges.Message
	var alerts []Alert
	var places []int
	var place int
	var mentions, named, old bool
	var olds []bool
	var a Alert
	rows, _ := tx.Query(ctx, statements.Of(partition, "read alerts"), users, devices, MaxAlerts, time.Now(), maxAlertAge)
	if _, err := pgx.ForEachRow(rows, []any{&place, &a.ConversationID, &a.Seq, &mentions, &named, &a.Title, &a.Body, &a.Data, &a.QueuedAt, &old}, func() error {
		messages = append(messages, badges.Message{UserID: users[place-1], ConversationID: a.ConversationID, Seq: a.Seq, Mentions: mentions, Named: named})
		alerts, places, olds = append(alerts, a), append(places, place-1), append(olds, old)
		a.Data = nil // the next alert needs its own map
		return nil
	}); err != nil || len(alerts) == 0 {
		return err
	}
	count, err := badges.NewReader(tx, n.cfg.Layouts).Count(ctx, partition, messages)
	if err != nil {
		return err
	}
	for i, a := range alerts {
		p := &due[places[i]]
		if count[i] && !olds[i] {
			p.Alerts = append(p.Alerts, a)
		} else {
			p.dropped = append(p.dropped, a)
		}
	}
	return nil
}

// addRetractions adds to each device in due the alerts that the device must remove: the device
// shows the alert, but the message was read or recalled after the push.
func (n *Notifier) addRetractions(ctx context.Context, tx pgx.Tx, partition int, due []DevicePush) error {
	users, devices := make([]string, len(due)), make([]string, len(due))
	for i := range due {
		users[i], devices[i] = due[i].UserID, due[i].DeviceID
	}
	var messages []badges.Message
	var places []int
	var place int
	var a AlertName
	rows, _ := tx.Query(ctx, statements.Of(partition, "read shown alerts"), users, devices, MaxShown)
	if _, err := pgx.ForEachRow(rows, []any{&place, &a.ConversationID, &a.Seq}, func() error {
		messages = append(messages, badges.Message{UserID: users[place-1], ConversationID: a.ConversationID, Seq: a.Seq, AnyLevel: true})
		places = append(places, place-1)
		return nil
	}); err != nil || len(messages) == 0 {
		return err
	}
	unread, err := badges.NewReader(tx, n.cfg.Layouts).Count(ctx, partition, messages)
	if err != nil {
		return err
	}
	for i, m := range messages {
		p := &due[places[i]]
		switch {
		case unread[i]:
		case len(p.Retract) < MaxRetract:
			p.Retract = append(p.Retract, AlertName{m.ConversationID, m.Seq})
		default:
			p.moreToRetract = true
		}
	}
	return nil
}
