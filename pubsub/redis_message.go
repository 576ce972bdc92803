package pubsub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// wakeChannel carries the partitions of each Wake as a JSON array.
const wakeChannel = "badged:wake"

// channelOf returns the channel of a user: badged:{p03}:u:alice. A cluster
// hashes only what the first braces hold, so that all users of a partition share
// a slot, whatever their ids hold.
func channelOf(u User) string {
	return string(appendChannel(make([]byte, 0, 64), u))
}

func appendChannel(b []byte, u User) []byte {
	b = append(b, "badged:{p"...)
	if 0 <= u.Partition && u.Partition < 10 {
		b = append(b, '0')
	}
	b = strconv.AppendInt(b, int64(u.Partition), 10)
	b = append(b, "}:u:"...)
	return append(b, u.ID...)
}

func channelsOf(users []User) []string {
	channels := make([]string, len(users))
	for i, u := range users {
		channels[i] = channelOf(u)
	}
	return channels
}

// errWrongChannel says that an update came on the channel of another user.
var errWrongChannel = errors.New("the update is of another user than the channel")

// decodeUpdate reads the update that came on channel.
func decodeUpdate(channel, payload string) (*Update, error) {
	u := new(Update)
	if err := json.Unmarshal([]byte(payload), u); err != nil {
		return nil, fmt.Errorf("decode the update: %w", err)
	}
	var buf [192]byte
	if string(appendChannel(buf[:0], User{ID: u.UserID, Partition: u.Partition})) != channel {
		return nil, errWrongChannel
	}
	return u, nil
}

// publishCommand builds PUBLISH. go-redis takes it for a command without a key
// and would spread the publishes of one user over all nodes of a cluster, which
// then pass them on in any order; by its channel as the key they take one road.
func publishCommand(ctx context.Context, channel string, payload []byte) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx, "publish", channel, payload)
	cmd.SetFirstKeyPos(1)
	return cmd
}
