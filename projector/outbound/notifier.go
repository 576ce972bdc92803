package outbound

import (
	"context"
	"encoding/json"
	"time"

	"github.com/badged/badged/pubsub"
)

// DevicePush is what a device may have to be told, with the number of a snapshot that
// is newer than the change that made it due.
type DevicePush struct {
	Partition                                    int
	UserID, DeviceID, App, Platform, Environment string
	Token                                        []byte
	Generation, Changes                          int64
	Attempts                                     int
	Epoch                                        string
	Version                                      int64
	Number                                       int64
	Told                                         *int64
	// Badge is the whole badge.
	Badge pubsub.Badge
	// Alerts are still unread and not muted, oldest first.
	Alerts []Alert
}

// Alert is a notification of a message.
type Alert struct {
	ConversationID string
	Seq            int64
	Title, Body    string
	Data           map[string]string
	QueuedAt       time.Time
}

// Call is what a webhook may have to be told of a subject.
type Call struct {
	Partition              int
	Webhook, Type, Subject string
	Changes                int64
	Attempts               int
	// QueuedAt is that of the first change that was not told.
	QueuedAt time.Time
	// Badge is that of the user, if the subject is one.
	Badge *pubsub.Badge
	// Room is the state of the room, if the subject is one.
	Room *RoomState
	// Told is what Tell was in the last call; nil if there was none.
	Told json.RawMessage
	// Tell is set by the sender to what the endpoint knows after the call.
	Tell json.RawMessage
}

// RoomState is what a webhook is told of a large room.
type RoomState struct {
	ConversationID, Category, Epoch string
	// Changes is the version of the room in the partition, and Members its members
	// there.
	Changes, LastSeq, Members int64
}

// Notifier owns partitions, makes their targets due and hands them to senders. The
// senders are in the same process.
type Notifier struct{}

// NextDevices takes up to limit devices of an app and platform that are due and whose
// number differs from what they were told, or that have an alert. It waits until there
// is one; the only error is that of ctx. Report what became of each by one call of
// DeviceTold, DeviceRetry, DeviceHold or DeviceGone: until then it is not taken again.
func (n *Notifier) NextDevices(ctx context.Context, app, platform string, limit int) ([]DevicePush, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// DeviceTold reports that a device was told its number and its alerts. For so long
// after it only alerts are pushed to it. It does not block, as the other reports.
func (n *Notifier) DeviceTold(p DevicePush, quiet time.Duration) {}

// DeviceRetry reports that a push failed. The device is due again after some time, or
// earlier if it was registered again.
func (n *Notifier) DeviceRetry(p DevicePush, after time.Duration, reason string) {}

// DeviceHold reports that a device is not told now, and is due after some time. This
// is no failure.
func (n *Notifier) DeviceHold(p DevicePush, after time.Duration) {}

// DeviceGone deletes a device that its vendor does not know, unless it was registered
// again.
func (n *Notifier) DeviceGone(p DevicePush, reason string) {}

// NextCalls takes up to limit subjects that are due for a webhook, as NextDevices
// does. It does not look at the webhook's own state. Report each by one call of
// CallTold or CallRetry.
func (n *Notifier) NextCalls(ctx context.Context, webhook string, limit int) ([]Call, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// CallTold reports that a webhook was told c.Tell of a subject, or need not be told
// if that is c.Told.
func (n *Notifier) CallTold(c Call) {}

// CallRetry reports that a subject was not told, and is due again after some time.
func (n *Notifier) CallRetry(c Call, after time.Duration) {}
