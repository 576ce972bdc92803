package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/events"
)

// maxTextBytes is the maximum length of a message's text in bytes.
const maxTextBytes = 500

type messageBody struct {
	ConversationID string `json:"conversation_id"`
	SenderID       string `json:"sender_id"`
	Text           string `json:"text"`
}

func (d *Demo) postMessage(ctx context.Context, in messageBody) (any, error) {
	to, err := findConversation(in.ConversationID)
	text := strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(in.Text, "\x00", ""), ""))
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(to.Members, in.SenderID):
		return nil, refusal("the sender is not in this conversation")
	case text == "" || len(text) > maxTextBytes:
		return nil, refusal("a message has 1 to 500 bytes")
	}
	m, err := d.store.send(ctx, to, in.SenderID, text)
	if err != nil {
		return nil, err
	}
	d.feed.message(m)
	return struct {
		Seq int64 `json:"seq"`
	}{m.Seq}, nil
}

type recallBody struct {
	ConversationID string `json:"conversation_id"`
	SenderID       string `json:"sender_id"`
	Seq            int64  `json:"seq"`
}

func (d *Demo) postRecall(ctx context.Context, in recallBody) (any, error) {
	from, err := findConversation(in.ConversationID)
	if err != nil {
		return nil, err
	}
	m, err := d.store.recall(ctx, from, in.SenderID, in.Seq)
	if err != nil {
		return nil, err
	}
	d.feed.message(m)
	return struct{}{}, nil
}

type levelBody struct {
	ConversationID string       `json:"conversation_id"`
	UserID         string       `json:"user_id"`
	Level          events.Level `json:"level"`
}

func (d *Demo) postLevel(ctx context.Context, in levelBody) (any, error) {
	of, err := findConversation(in.ConversationID)
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(of.Members, in.UserID):
		return nil, refusal("the user is not in this conversation")
	case !slices.Contains([]events.Level{events.LevelDefault, events.LevelAll, events.LevelMentions, events.LevelDirectMentions, events.LevelNone}, in.Level):
		return nil, refusal("a level is all, mentions, direct_mentions or none")
	}
	if err := d.store.setLevel(ctx, in.UserID, in.ConversationID, in.Level); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}

// maxCut is the longest time for which the page can cut the bus at once.
const maxCut = time.Minute

// linkState has the time until the cut of the bus ends, and the number of updates that were lost in
// all cuts.
type linkState struct {
	CutMS int64 `json:"cut_ms"`
	Lost  int64 `json:"lost"`
}

func (d *Demo) linkState() linkState {
	return linkState{d.cfg.Bus.remaining().Milliseconds(), d.cfg.Bus.lost.Load()}
}

type busBody struct {
	CutMS int64 `json:"cut_ms"`
}

func (d *Demo) postBus(_ context.Context, in busBody) (any, error) {
	length := time.Duration(in.CutMS) * time.Millisecond
	if in.CutMS < 0 || in.CutMS > maxCut.Milliseconds() {
		return nil, refusal(fmt.Sprintf("cut_ms is 0 to %d", maxCut.Milliseconds()))
	}
	d.cfg.Bus.cut(length)
	d.feed.link(d.linkState())
	return d.linkState(), nil
}

// simulation says whether the simulated people write messages.
type simulation struct {
	Running bool `json:"running"`
}

func (d *Demo) postSimulation(_ context.Context, in simulation) (any, error) {
	d.running.Store(in.Running)
	return in, nil
}
