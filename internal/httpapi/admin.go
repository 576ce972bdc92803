package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector"
)

// Explainer tells why the badge of a user is what it is, or, where at is not
// zero, what it was then.
type Explainer interface {
	Explain(ctx context.Context, userID string, at time.Time) (projector.Explanation, error)
}

// admin lets admins in.
func (a *API) admin(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		secret, err := bearer(r)
		if err == nil {
			if _, ok := a.cfg.Admins.Check(secret); !ok {
				err = unauthorized("the key is not one of an admin")
			}
		}
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

// getExplanation answers why the badge of a user is what it is; with at, what
// it was then.
func (a *API) getExplanation(w http.ResponseWriter, r *http.Request) error {
	user := r.PathValue("user")
	if reason := events.CheckID(user); reason != "" {
		return &problem{Status: http.StatusBadRequest, Detail: "user id " + reason}
	}
	q, err := queryOf(r, "at")
	if err != nil {
		return err
	}
	var at time.Time
	if s := q.Get("at"); s != "" {
		if at, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return &problem{Status: http.StatusBadRequest, Detail: "at must be a time such as 2026-01-31T23:59:59Z"}
		}
	}
	explanation, err := a.cfg.Explainer.Explain(r.Context(), user, at)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, "application/json", explanation)
	return nil
}
