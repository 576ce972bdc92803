package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// Limits of the parameter at_least: how long a request may wait until the events up to this
// position are folded, and the first and the longest pause between two checks.
const (
	defaultWait = 2 * time.Second
	maxWait     = 30 * time.Second
	firstPause  = time.Millisecond
	lastPause   = 25 * time.Millisecond
)

// getBadge answers with the badge of a user. If the query has at_least, it first waits until the
// badge includes all events up to this position.
func (a *API) getBadge(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	q := r.URL.Query()
	user := r.PathValue("user")
	if unread, err := a.await(r.Context(), []string{user}, q.Get("at_least"), q.Get("timeout")); err != nil {
		return answer{}, err
	} else if unread != nil {
		return answer{}, unread
	}
	badge, err := a.badge(r.Context(), user, caller.user.Categories)
	return answer{body: badge.Shown()}, err
}

// badge reads the badge of a user. If categories is not nil, the badge includes only these
// categories.
func (a *API) badge(ctx context.Context, userID string, categories []string) (pubsub.Badge, error) {
	if categories == nil {
		return read(ctx, a, func(from Badges) (pubsub.Badge, error) { return from.Badge(ctx, userID) })
	}
	state, err := read(ctx, a, func(from Badges) (pubsub.Snapshot, error) { return from.View(ctx, userID, categories) })
	if err != nil {
		return pubsub.Badge{}, err
	}
	return state.Within(category.Tops(categories)), nil
}

// These constants limit the memory that an answer to a query for badges needs, whatever the number
// of categories of the users.
const (
	// badgesAtOnce is the number of badges that one statement reads.
	badgesAtOnce = 50
	// badgesHeld is the size in bytes of the buffer for an answer. An answer that fits into the
	// buffer is sent after all badges are read. A longer answer is sent in parts of about this
	// size.
	badgesHeld = 1 << 20
)

type badgesQuery struct {
	UserIDs []string `json:"user_ids" minItems:"1" maxItems:"1000" minLength:"1" maxLength:"128" doc:"The ids of the users."`
	AtLeast string   `json:"at_least,omitempty" doc:"Wait until the badges include all events up to this position before answering. The position is the value of the header Badged-Position of an answer."`
	Timeout string   `json:"timeout,omitempty" doc:"How long to wait for at_least: a duration such as 500ms or 2s, at most 30s; 2s by default."`
}

// badgesAnswer is the answer to a badgesQuery.
type badgesAnswer struct {
	Badges []pubsub.Badge `json:"badges" doc:"The badges, one for each user."`
}

// queryBadges answers with the badges of many users, one for each user, in the order in which
// the request first names them.
func (a *API) queryBadges(w http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	body, err := a.readBody(w, r, maxListBody)
	if err != nil {
		return answer{}, err
	}
	var q badgesQuery
	if err := decodeStrict(body, &q); err != nil {
		return answer{}, &problem{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	if n := len(q.UserIDs); n == 0 || n > badges.MaxBadges {
		return answer{}, &problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("user_ids must name 1 to %d users, names %d", badges.MaxBadges, n)}
	}
	for i, id := range q.UserIDs {
		if reason := events.CheckID(id); reason != "" {
			return answer{}, &problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("user_ids[%d] %s", i, reason)}
		}
	}
	if err := caller.key.CheckRead(q.UserIDs...); err != nil {
		return answer{}, keyProblem(err)
	}
	given := make(map[string]bool, len(q.UserIDs))
	q.UserIDs = slices.DeleteFunc(q.UserIDs, func(id string) bool {
		again := given[id]
		given[id] = true
		return again
	})
	writer := &badgesWriter{body: begunBody{ResponseWriter: w, mediaType: "application/json"}, held: []pubsub.Badge{}}
	return answer{}, a.finish(r, &writer.body, a.writeBadges(r.Context(), writer, q))
}

// writeBadges writes the badges of the users of a query, in the order of the query. If the
// badges of some users cannot be read, it returns an [*incompleteError] with the badges of the
// other users, or a [*cluster.PartialFailure] if a part of the answer was sent already.
func (a *API) writeBadges(ctx context.Context, answer *badgesWriter, q badgesQuery) error {
	unread, err := a.await(ctx, q.UserIDs, q.AtLeast, q.Timeout)
	if err != nil {
		return err
	}
	for users := range slices.Chunk(unread.Without(q.UserIDs), badgesAtOnce) {
		if unread != nil && answer.full() {
			unread = unread.Add(leftOut(users, len(unread.Partitions)))
			continue
		}
		found, err := read(ctx, a, func(from Badges) ([]pubsub.Badge, error) { return from.ShownBadges(ctx, users) })
		also, ok := errors.AsType[*cluster.PartialFailure](err)
		if err != nil && !ok {
			return err
		}
		if unread = unread.Add(also); unread != nil && answer.body.begun {
			return unread
		}
		complete := also.Without(users)
		if err := answer.add(slices.DeleteFunc(found, func(b pubsub.Badge) bool { return !slices.Contains(complete, b.UserID) })); err != nil {
			return err
		}
		if unread == nil && answer.full() {
			if err := answer.send(); err != nil {
				return err
			}
		}
	}
	if unread != nil {
		return &incompleteError{err: unread, badges: answer.held}
	}
	return answer.end()
}

// leftOut returns a failure for the given users of a query, without reading their badges. It is
// called when the query has failed for other users and the buffer is full: the answer to a query
// that has failed must fit into the buffer, so it has no space for more badges.
func leftOut(userIDs []string, partitions int) *cluster.PartialFailure {
	e := &cluster.PartialFailure{UserIDs: userIDs, Partitions: make([]bool, partitions)}
	for _, id := range userIDs {
		e.Partitions[events.PartitionOf(id, partitions)] = true
	}
	return e
}

// badgesWriter writes a badgesAnswer while the badges are being read.
type badgesWriter struct {
	body begunBody
	// held has the badges that are not sent yet. text is the JSON of these badges.
	held []pubsub.Badge
	text bytes.Buffer
}

// full reports whether the buffer has reached the size at which it is sent.
func (w *badgesWriter) full() bool { return w.text.Len() >= badgesHeld }

func (w *badgesWriter) add(found []pubsub.Badge) error {
	for i := range found {
		b, err := json.Marshal(&found[i])
		if err != nil {
			return fmt.Errorf("encode the badge of user %q: %w", found[i].UserID, err)
		}
		if len(w.held) == 0 && i == 0 && !w.body.begun {
			w.text.WriteString(`{"badges":[`)
		} else {
			w.text.WriteByte(',')
		}
		w.text.Write(b)
	}
	if !w.body.begun {
		w.held = append(w.held, found...)
	}
	return nil
}

func (w *badgesWriter) send() error {
	w.held = nil
	_, err := w.text.WriteTo(&w.body)
	return err
}

func (w *badgesWriter) end() error {
	w.text.WriteString("]}\n")
	return w.send()
}

type conversationsPage struct {
	Conversations json.RawMessage `json:"conversations" doc:"The conversations, the most recently changed first."`
	Cursor        string          `json:"cursor,omitempty" doc:"The cursor of the next page; absent on the last page."`
}

// getConversations answers with a page of a user's conversations.
func (a *API) getConversations(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	q := r.URL.Query()
	limit, err := pageLimit(q)
	if err != nil {
		return answer{}, err
	}
	f := badges.Filter{Within: caller.user.Categories}
	if f.Category, err = categoryParam(q); err != nil {
		return answer{}, err
	}
	unread, err := boolParam(q, "unread")
	if err != nil {
		return answer{}, err
	}
	f.Unread = unread != nil && *unread
	if f.Muted, err = boolParam(q, "muted"); err != nil {
		return answer{}, err
	}
	page, next, err := readPage(r.Context(), a, func(from Badges) ([]pubsub.Conversation, string, error) {
		return from.Conversations(r.Context(), r.PathValue("user"), f, limit, q.Get("cursor"))
	})
	if err != nil {
		return answer{}, err
	}
	shown, err := withSeqs(q, page)
	return answer{body: conversationsPage{shown, next}}, err
}

type categoriesPage struct {
	Categories []badges.Category `json:"categories" doc:"The categories with a number above 0 or a level, by name."`
	Cursor     string            `json:"cursor,omitempty" doc:"The cursor of the next page; absent on the last page."`
}

// getCategories answers with a page of a user's categories.
func (a *API) getCategories(_ http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	q := r.URL.Query()
	limit, err := pageLimit(q)
	if err != nil {
		return answer{}, err
	}
	of, err := categoryParam(q)
	if err != nil {
		return answer{}, err
	}
	page, next, err := readPage(r.Context(), a, func(from Badges) ([]badges.Category, string, error) {
		return from.Categories(r.Context(), r.PathValue("user"), caller.user.Categories, of, limit, q.Get("cursor"))
	})
	return answer{body: categoriesPage{page, next}}, err
}

// readPage reads a page, and the cursor of the page after it. The page is never nil.
func readPage[T any](ctx context.Context, a *API, ask func(from Badges) ([]T, string, error)) (page []T, next string, err error) {
	page, err = read(ctx, a, func(from Badges) (page []T, err error) {
		page, next, err = ask(from)
		return page, err
	})
	if errors.Is(err, badges.ErrBadCursor) {
		err = &problem{Status: http.StatusBadRequest, Detail: "cursor must be the cursor of the previous page"}
	}
	if page == nil {
		page = []T{}
	}
	return page, next, err
}

// pageLimit returns the parameter limit of a query, 100 if it is absent.
func pageLimit(q url.Values) (int, error) {
	s := q.Get("limit")
	if s == "" {
		return 100, nil
	}
	limit, err := strconv.Atoi(s)
	if err != nil || limit < 1 || limit > badges.MaxPage {
		return 0, &problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("limit must be a number from 1 to %d", badges.MaxPage)}
	}
	return limit, nil
}

// categoryParam returns the parameter category of a query, "" if it is absent.
func categoryParam(q url.Values) (string, error) {
	path := q.Get("category")
	if reason := events.CheckCategory(path); path != "" && reason != "" {
		return "", &problem{Status: http.StatusBadRequest, Detail: "category " + reason}
	}
	return path, nil
}

// boolParam returns a parameter that is true or false, or nil if it is absent.
func boolParam(q url.Values, name string) (*bool, error) {
	s := q.Get(name)
	if s == "" {
		return nil, nil //nolint:nilnil // it is not given
	}
	value, err := strconv.ParseBool(s)
	if err != nil {
		return nil, &problem{Status: http.StatusBadRequest, Detail: name + " must be true or false"}
	}
	return &value, nil
}

// lostPosition is the text of the error if the log may have lost the position at_least.
const lostPosition = "the log may have lost what was published at this position: Postgres has failed over or was restored since, or the transaction has not committed; " +
	"publish the events again under the same ids, which is harmless, and use the new position"

// await waits until the badges of users include all events up to the position atLeast. If atLeast
// is "", it returns at once. unread names the users whose badges could not be read, for example
// because their database is unavailable. The badges of all other users include the events up to
// atLeast.
func (a *API) await(ctx context.Context, users []string, atLeast, timeout string) (unread *cluster.PartialFailure, err error) {
	wait := defaultWait
	if timeout != "" {
		if wait, err = time.ParseDuration(timeout); err != nil || wait < 0 || wait > maxWait {
			return nil, &problem{Status: http.StatusBadRequest, Detail: "timeout must be a duration such as 500ms or 2s, at most " + maxWait.String()}
		}
		if atLeast == "" {
			return nil, &problem{Status: http.StatusBadRequest, Detail: "timeout requires at_least"}
		}
	}
	if atLeast == "" {
		return nil, nil //nolint:nilnil // there is nothing to wait for
	}
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	look := ctx // the first check is not limited by the timeout, which may be shorter than the check takes
	for pause := firstPause; len(users) > 0; pause = min(2*pause, lastPause) {
		folded, err := read(look, a, func(from Badges) (bool, error) { return from.FoldedAt(look, users, atLeast) })
		switch some, ok := errors.AsType[*cluster.PartialFailure](err); {
		case errors.Is(err, cluster.ErrBadPosition):
			return nil, &problem{Status: http.StatusBadRequest, Detail: "at_least must be a token from a " + PositionHeader + " header"}
		case errors.Is(err, badges.ErrLost):
			return nil, &problem{Status: http.StatusConflict, Detail: lostPosition}
		case ok && look.Err() == nil:
			unread, users = unread.Add(some), some.Without(users)
			continue
		case err != nil && look.Err() == nil:
			return nil, err
		case folded:
			return unread, a.stillAuthorized(ctx)
		}
		select {
		case <-waitCtx.Done():
			return nil, &problem{Status: http.StatusGatewayTimeout, Detail: "not folded within " + wait.String() + "; ask again"}
		case <-time.After(pause):
		}
		look = waitCtx
	}
	return unread, a.stillAuthorized(ctx)
}

// mayBeEmpty are the parameters that clients may send without a value: a loop over pages may begin
// with an empty cursor, and an app may not have registered its device.
var mayBeEmpty = []string{"cursor", "device"}

// checkQuery fails if a parameter of the query of r is not in known, or is repeated or empty: the
// server would treat an empty value, such as unread=, as no filter.
func checkQuery(r *http.Request, known []string) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return badRequest("the query cannot be read")
	}
	for name, values := range q {
		switch {
		case !slices.Contains(known, name):
			return badRequest(fmt.Sprintf("%q is not a parameter of this route", name))
		case len(values) > 1 || values[0] == "" && !slices.Contains(mayBeEmpty, name):
			return badRequest(name + " must be given once, with a value")
		}
	}
	return nil
}
