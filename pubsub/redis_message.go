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

// wakeChannel carries Wake calls: a message is a JSON array of partitions.
const wakeChannel = "badged:wake"

// The channel of a user is badged:{p03}:u:alice, and the channel of a room in a partition is
// badged:{p03}:r:lobby. A cluster hashes only the text in the first braces of a channel's name.
// So all channels of a partition are in one slot, whatever text the ids contain.
const (
	userMark = "}:u:"
	roomMark = "}:r:"
)

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

// isRoom reports whether a channel belongs to a room. It checks only the text immediately after
// the first closing brace. This brace ends the tag, since tags contain no braces. So the id,
// which may contain any text, has no influence on the result.
func isRoom(channel string) bool {
	_, rest, _ := strings.Cut(channel, "}")
	return strings.HasPrefix(rest, roomMark[1:])
}

// partitionTag returns the tag of a partition, such as p03: the part of the channel names that
// a cluster hashes.
func partitionTag(partition int) string { return string(appendTag(nil, partition)) }

func appendTag(b []byte, partition int) []byte {
	b = append(b, 'p')
	if 0 <= partition && partition < 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, int64(partition), 10)
}

// everyTag is the tag of a listener that receives the channels of all partitions.
const everyTag = "all"

// canaryChannel returns a new channel in the same slot as the channels with a tag. The tag of a
// channel is the text that a cluster hashes: the text in the channel's first braces, or its
// whole name if it has no braces.
func canaryChannel(tag string) string { return "badged:{" + tag + "}:canary:" + rand.Text() }

// errWrongChannel reports that an update has arrived on the channel of another user or room.
var errWrongChannel = errors.New("the update belongs to another user or room than the channel")

func decodeUpdate(channel, payload string) (update, error) {
	var u update = new(Update)
	if isRoom(channel) {
		u = new(RoomUpdate)
	}
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

// command builds PUBLISH or SPUBLISH, with the channel as the key of the command. Without this
// key, go-redis would send the updates of a user to different nodes of a cluster, and they
// could arrive in the wrong order.
func (m redisMessage) command(ctx context.Context, bySlot bool) *redis.IntCmd {
	name := "publish"
	if bySlot {
		name = "spublish"
	}
	cmd := redis.NewIntCmd(ctx, name, m.channel, m.payload)
	cmd.SetFirstKeyPos(1)
	return cmd
}
