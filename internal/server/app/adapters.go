package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/badged/badged/events"
	"github.com/badged/badged/gateway"
	"github.com/badged/badged/internal/base/metric"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/internal/server/inbound"
	"github.com/badged/badged/pubsub"
)

// commandSource is the source of the events that are made from commands of apps.
const commandSource = "badged/gateway"

// commands appends an event for each command of an app. It implements gateway.Commands.
type commands struct{ publisher *publisher }

// Read implements gateway.Commands.
func (c commands) Read(ctx context.Context, identity gateway.Identity, key, conversationID string, upToSeq int64) error {
	return c.append(ctx, identity, key, events.ConversationRead, events.Data{ConversationID: conversationID, UpToSeq: upToSeq, ByApp: true})
}

// ReadAll implements gateway.Commands.
func (c commands) ReadAll(ctx context.Context, identity gateway.Identity, key, category string) error {
	return c.append(ctx, identity, key, events.UserReadAll, events.Data{Category: category, AllCategories: category == ""})
}

// Seen implements gateway.Commands.
func (c commands) Seen(ctx context.Context, identity gateway.Identity, key, conversationID string, upToSeq int64) error {
	return c.append(ctx, identity, key, events.ConversationSeen, events.Data{ConversationID: conversationID, UpToSeq: upToSeq, ByApp: true})
}

// SeenAll implements gateway.Commands.
func (c commands) SeenAll(ctx context.Context, identity gateway.Identity, key, category string) error {
	return c.append(ctx, identity, key, events.UserSeenAll, events.Data{Category: category, AllCategories: category == ""})
}

// SetLevel implements gateway.Commands.
func (c commands) SetLevel(ctx context.Context, identity gateway.Identity, key, category, level string) error {
	return c.append(ctx, identity, key, events.CategoryLevelSet, events.Data{Category: category, Level: events.Level(level), ByApp: true})
}

// MarkUnread implements gateway.Commands.
func (c commands) MarkUnread(ctx context.Context, identity gateway.Identity, key, conversationID string, messages gateway.Messages) error {
	return c.append(ctx, identity, key, events.ConversationMarkedUnread, events.Data{
		ConversationID: conversationID, Seqs: messages.Seqs, FromSeq: messages.FromSeq,
	})
}

// append appends an event of the user who sent a command. It fails if the token of this user has
// been revoked; the database checks this in the same transaction.
func (c commands) append(ctx context.Context, identity gateway.Identity, key string, t events.Type, d events.Data) error {
	id, err := commandID(identity.UserID, key)
	if err != nil {
		return err
	}
	d.UserIDs = []string{identity.UserID}
	ctx = eventlog.WithRights(ctx, eventlog.Right{UserID: identity.UserID, IssuedAt: identity.IssuedAt, ExpiresAt: identity.ExpiresAt})
	_, err = c.publisher.Append(ctx, events.Event{ID: id, Source: commandSource, Type: t, Data: d})
	if bad, ok := errors.AsType[*events.BatchError](err); ok {
		return invalidCommand{bad.Events[0].Err}
	}
	if errors.Is(err, eventlog.ErrRevoked) {
		return gateway.ErrTokenEnded
	}
	return err
}

// connected implements gateway.Devices for the gateway whose name is in the field gateway.
type connected struct {
	// targets returns access to the devices in the database of a user.
	targets func(userID string) (*outbound.Targets, error)
	gateway string
}

// Hold implements gateway.Devices.
func (c connected) Hold(ctx context.Context, devices []gateway.Device, lease time.Duration) error {
	names := map[*outbound.Targets][]outbound.DeviceName{}
	var errs []error
	for _, d := range devices {
		targets, err := c.targets(d.UserID)
		if err != nil { // skip this user, and continue with the devices of the other users
			errs = append(errs, err)
			continue
		}
		names[targets] = append(names[targets], outbound.DeviceName{UserID: d.UserID, DeviceID: d.ID})
	}
	for targets, some := range names {
		errs = append(errs, targets.HoldDevices(ctx, c.gateway, some, lease))
	}
	return errors.Join(errs...)
}

// commandID returns the id of the event for a command. The app chooses the key of a command, so the
// id also contains the user id: commands of two users with the same key must get different ids. ADR
// 33 has the reasons.
func commandID(userID, key string) (string, error) {
	if key != "" {
		return userID + "/" + key, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an event id: %w", err)
	}
	return id.String(), nil
}

// invalidCommand implements gateway.InvalidError.
type invalidCommand struct{ *events.InvalidError }

// Invalid implements gateway.InvalidError.
func (e invalidCommand) Invalid() string {
	f := e.Fields[0]
	return strings.TrimPrefix(f.Field, "data.") + " " + f.Message
}

// authenticator implements gateway.Authenticator.
type authenticator struct{ tokens *auth.Tokens }

// Authenticate implements gateway.Authenticator.
func (a authenticator) Authenticate(ctx context.Context, token string) (gateway.Identity, error) {
	id, err := a.tokens.Authenticate(ctx, token)
	switch {
	case errors.Is(err, auth.ErrExpired):
		return gateway.Identity{}, gateway.ErrTokenExpired
	case errors.Is(err, auth.ErrKeysAway), errors.As(err, new(*auth.PartialReadError)):
		return gateway.Identity{}, gateway.ErrAuthenticatorAway
	case err == nil && !inbound.Vouch(ctx, inbound.Holder{User: true, Name: id.UserID}): // only for HTTP requests: a WebSocket authenticates in another context, and calls Vouch itself
		return gateway.Identity{}, gateway.ErrAuthenticatorAway
	}
	return gateway.Identity(id), err
}

// busState has the methods of pubsub.Redis that the metrics call.
type busState interface {
	Stats() pubsub.Stats
	Connected() bool
}

func registerBusMetrics(r prometheus.Registerer, bus busState) {
	metric.GaugeFunc(r, "badged_bus_connected", "1 while every subscription of this process has a connection to Redis, else 0.", func() float64 {
		if bus.Connected() {
			return 1
		}
		return 0
	})
	for _, c := range []struct {
		name, help string
		value      func(pubsub.Stats) uint64
	}{
		{"badged_bus_reconnects_total", "New connections to Redis after a connection was lost.", func(s pubsub.Stats) uint64 { return s.Reconnects }},
		{"badged_bus_gaps_total", "Outages of Redis during which updates may have been lost.", func(s pubsub.Stats) uint64 { return s.Gaps }},
		{"badged_bus_canaries_missed_total", "Messages that check a Redis subscription and did not arrive. If two in a row do not arrive, the connection is closed.", func(s pubsub.Stats) uint64 { return s.CanariesMissed }},
		{"badged_bus_malformed_total", "Messages from Redis that could not be decoded.", func(s pubsub.Stats) uint64 { return s.Malformed }},
		{"badged_bus_unsigned_total", "Messages from Redis that were dropped because no key of --bus-key signed them.", func(s pubsub.Stats) uint64 { return s.Unsigned }},
		{"badged_bus_publish_errors_total", "Publishes to Redis that failed.", func(s pubsub.Stats) uint64 { return s.PublishErrors }},
	} {
		metric.CounterFunc(r, c.name, c.help, func() float64 { return float64(c.value(bus.Stats())) })
	}
}
