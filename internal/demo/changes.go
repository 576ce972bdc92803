package demo

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/badged/badged/internal/partition/replay"
)

// Explainer explains how an event changes a user's badge.
type Explainer interface {
	EffectOf(ctx context.Context, userID string, name replay.EventName) (replay.Effect, error)
}

// getChanges answers how one event has changed badges. The query parameters source, id and
// transaction name the event, and each parameter user names a user. Users who are not people of
// the demo are ignored.
func (d *Demo) getChanges(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	transaction, err := strconv.ParseInt(q.Get("transaction"), 10, 64)
	name := replay.EventName{Source: q.Get("source"), ID: q.Get("id"), TransactionID: transaction}
	if err != nil || name.Source == "" || name.ID == "" {
		d.fail(w, r, refusal("an event is named by its source, id and transaction"))
		return
	}
	answer := struct {
		Changes []replay.Effect `json:"changes"`
	}{[]replay.Effect{}}
	for _, p := range people() {
		if !slices.Contains(q["user"], p.UserID) {
			continue
		}
		effect, err := d.cfg.Explainer.EffectOf(r.Context(), p.UserID, name)
		if err != nil {
			d.fail(w, r, err)
			return
		}
		if effect.Folded {
			answer.Changes = append(answer.Changes, effect)
		}
	}
	d.answer(w, http.StatusOK, answer)
}
