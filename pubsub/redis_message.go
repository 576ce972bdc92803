package pubsub

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// wakeChannel carries the partitions of each Wake as a JSON array.
const wakeChannel = "badged:wake"

// The channel of a user is badged:{p03}:u:alice, that of a room in a partition
// badged:{p03}:r:lobby. A cluster hashes only the text in the first braces, so
// that a partition has one slot, whatever the ids contain.
const (
	userMark = "}:u:"
	roomMark = "}:r:"
)

// channelOf returns the channel of an address.
func channelOf(a Address) string {
	return string(appendChannel(make([]byte, 0, 64), a))
}

func appendChannel(b []byte, a Address) []byte {
	b = append(b, "badged:{"...)
	b = appendTag(b, a.Partition)
	if a.Room {
		b = append(b, roomMark...)
	} else {
		b = append(b, userMark...)
	}
	return append(b, a.ID...)
}

// isRoom reports whether a channel is that of a room. The mark follows the tag,
// which has no braces, so no id can imitate it.
func isRoom(channel string) bool {
	_, rest, _ := strings.Cut(channel, "}")
	return strings.HasPrefix(rest, roomMark[1:])
}

// partitionTag returns the part of a partition's channels that a cluster
// hashes: p03.
func partitionTag(partition int) string { return string(appendTag(nil, partition)) }

func appendTag(b []byte, partition int) []byte {
	b = append(b, 'p')
	if 0 <= partition && partition < 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, int64(partition), 10)
}

// everyTag is the tag of a listener to channels of all partitions.
const everyTag = "all"

// canaryChannel returns a new channel in the slot of the channels with a tag.
// The tag of a channel is the text in its first braces, or its name without
// braces.
func canaryChannel(tag string) string { return "badged:{" + tag + "}:canary:" + rand.Text() }

// errWrongChannel reports an update on the channel of another user or room.
var errWrongChannel = errors.New("the update is of another user or room than the channel")

// decodeUpdate decodes an update that arrived on channel.
func decodeUpdate[U any, P interface {
	*U
	Address() Address
}](channel, payload string) (P, error) {
	u := P(new(U))
	if err := json.Unmarshal([]byte(payload), u); err != nil {
		return nil, fmt.Errorf("decode the update: %w", err)
	}
	var buf [192]byte
	if string(appendChannel(buf[:0], u.Address())) != channel {
		return nil, errWrongChannel
	}
	return u, nil
}

// redisMessage is a message to publish on a channel.
type redisMessage struct {
	channel string
	payload []byte
}

// command builds PUBLISH or SPUBLISH with the channel as its key. go-redis treats
// PUBLISH as a command without a key: it would spread the updates of a user over
// all nodes of a cluster, and so break their order.
func (m redisMessage) command(ctx context.Context, sharded bool) *redis.IntCmd {
	name := "publish"
	if sharded {
		name = "spublish"
	}
	cmd := redis.NewIntCmd(ctx, name, m.channel, m.payload)
	cmd.SetFirstKeyPos(1)
	return cmd
}
