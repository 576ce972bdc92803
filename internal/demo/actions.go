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

func (d *Demo) postMessage(ctx context.Context, body messageBody) (any, error) {
	to, err := findConversation(body.ConversationID)
	text := strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(body.Text, "\x00", ""), ""))
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(to.Members, body.SenderID):
		return nil, refusal("the sender is not in this conversation")
	case text == "" || len(text) > maxTextBytes:
		return nil, refusal("a message has 1 to 500 bytes")
	}
	m, err := d.store.send(ctx, to, body.SenderID, text)
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

func (d *Demo) postRecall(ctx context.Context, body recallBody) (any, error) {
	from, err := findConversation(body.ConversationID)
	if err != nil {
		return nil, err
	}
	m, err := d.store.recall(ctx, from, body.SenderID, body.Seq)
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

func (d *Demo) postLevel(ctx context.Context, body levelBody) (any, error) {
	of, err := findConversation(body.ConversationID)
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(of.Members, body.UserID):
		return nil, refusal("the user is not in this conversation")
	case !slices.Contains([]events.Level{events.LevelDefault, events.LevelAll, events.LevelMentions, events.LevelDirectMentions, events.LevelNone}, body.Level):
		return nil, refusal("a level is all, mentions, direct_mentions or none")
	}
	if err := d.store.setLevel(ctx, body.UserID, body.ConversationID, body.Level); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}

// maxCut is the longest time for which the page can cut the bus at once.
const maxCut = time.Minute

// linkState describes the demo's bus, which the page can cut for some time. CutMS is the time in
// milliseconds until the current cut ends; 0 if there is none. Lost is how many updates were lost
// in all cuts so far.
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

func (d *Demo) postBus(_ context.Context, body busBody) (any, error) {
	length := time.Duration(body.CutMS) * time.Millisecond
	if body.CutMS < 0 || body.CutMS > maxCut.Milliseconds() {
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

func (d *Demo) postSimulation(_ context.Context, body simulation) (any, error) {
	d.running.Store(body.Running)
	return body, nil
}
