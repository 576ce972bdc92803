package demo

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/events"
)

// maxTextBytes is the maximum length of a message's text in bytes.
const maxTextBytes = 500

func (d *Demo) postMessage(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ConversationID string `json:"conversation_id"`
		SenderID       string `json:"sender_id"`
		Text           string `json:"text"`
	}
	if !d.decode(w, r, &in, "the message cannot be read") {
		return
	}
	to, err := findConversation(in.ConversationID)
	text := strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(in.Text, "\x00", ""), ""))
	switch {
	case err != nil:
		d.refuse(w, err.Error())
		return
	case !slices.Contains(to.Members, in.SenderID):
		d.refuse(w, "the sender is not in this conversation")
		return
	case text == "" || len(text) > maxTextBytes:
		d.refuse(w, "a message has 1 to 500 bytes")
		return
	}
	m, err := d.store.send(r.Context(), to, in.SenderID, text)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	d.feed.message(m)
	d.answer(w, http.StatusOK, struct {
		Seq int64 `json:"seq"`
	}{m.Seq})
}

func (d *Demo) postRecall(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ConversationID string `json:"conversation_id"`
		SenderID       string `json:"sender_id"`
		Seq            int64  `json:"seq"`
	}
	if !d.decode(w, r, &in, "the recall cannot be read") {
		return
	}
	from, err := findConversation(in.ConversationID)
	if err != nil {
		d.refuse(w, err.Error())
		return
	}
	m, err := d.store.recall(r.Context(), from, in.SenderID, in.Seq)
	if errors.Is(err, errNotRecalled) {
		d.refuse(w, err.Error())
		return
	}
	if err != nil {
		d.fail(w, r, err)
		return
	}
	d.feed.message(m)
	d.answer(w, http.StatusOK, struct{}{})
}

func (d *Demo) postLevel(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ConversationID string       `json:"conversation_id"`
		UserID         string       `json:"user_id"`
		Level          events.Level `json:"level"`
	}
	if !d.decode(w, r, &in, "the level cannot be read") {
		return
	}
	of, err := findConversation(in.ConversationID)
	switch {
	case err != nil:
		d.refuse(w, err.Error())
		return
	case !slices.Contains(of.Members, in.UserID):
		d.refuse(w, "the user is not in this conversation")
		return
	case !slices.Contains([]events.Level{events.LevelDefault, events.LevelAll, events.LevelMentions, events.LevelDirectMentions, events.LevelNone}, in.Level):
		d.refuse(w, "a level is all, mentions, direct_mentions or none")
		return
	}
	if err := d.store.setLevel(r.Context(), in.UserID, in.ConversationID, in.Level); err != nil {
		d.fail(w, r, err)
		return
	}
	d.answer(w, http.StatusOK, struct{}{})
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

func (d *Demo) getBus(w http.ResponseWriter, _ *http.Request) {
	d.answer(w, http.StatusOK, d.linkState())
}

func (d *Demo) postBus(w http.ResponseWriter, r *http.Request) {
	var in struct {
		CutMS int64 `json:"cut_ms"`
	}
	if !d.decode(w, r, &in, "want {\"cut_ms\": 10000}") {
		return
	}
	length := time.Duration(in.CutMS) * time.Millisecond
	if in.CutMS < 0 || in.CutMS > maxCut.Milliseconds() {
		d.refuse(w, fmt.Sprintf("cut_ms is 0 to %d", maxCut.Milliseconds()))
		return
	}
	d.cfg.Bus.cut(length)
	d.feed.link(d.linkState())
	d.answer(w, http.StatusOK, d.linkState())
}

// simulation says whether the simulated people write messages.
type simulation struct {
	Running bool `json:"running"`
}

func (d *Demo) getSimulation(w http.ResponseWriter, _ *http.Request) {
	d.answer(w, http.StatusOK, simulation{d.running.Load()})
}

func (d *Demo) postSimulation(w http.ResponseWriter, r *http.Request) {
	var in simulation
	if !d.decode(w, r, &in, "want {\"running\": true} or {\"running\": false}") {
		return
	}
	d.running.Store(in.Running)
	d.answer(w, http.StatusOK, in)
}
