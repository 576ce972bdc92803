package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/backpressure"
	"github.com/badged/badged/internal/server/inbound"
)

// Limits of one request.
const (
	// MaxBodyBytes is the size limit of a request to publish.
	MaxBodyBytes = 8 << 20
	// MaxEvents is the maximum number of events in one request.
	MaxEvents = 10_000
	// maxCopies is the maximum number of copies that the events of a request may have together: an
	// event has one copy in each partition of its users. copyBytes is the maximum memory, in
	// bytes, that a copy needs while it is appended.
	maxCopies = 250_000
	copyBytes = 640
	// maxBadEvents is the maximum number of invalid events that one answer lists.
	maxBadEvents = 100
	// appendPatience limits the time of an append, including the time for which it waits for
	// earlier requests.
	appendPatience = 15 * time.Second
)

// PositionHeader is the header of an answer with the position of the appended events. A client can
// give this position as at_least when it reads badges.
const PositionHeader = "Badged-Position"

// accepted is the body of the answer after the events have become durable.
type accepted struct {
	Accepted int `json:"accepted" minimum:"1" doc:"How many events were appended."`
}

// postEvents appends the events of a request. The body is one event, a JSON array of events, or
// JSON lines. If an event is invalid, no event is appended. With several databases, the append may
// fail in some databases and succeed in others. ADR 46 explains how publishers are slowed.
func (a *API) postEvents(w http.ResponseWriter, r *http.Request, caller grant) (answer, error) {
	split, err := splitterOf(r.Header.Get("Content-Type"))
	if err != nil {
		return answer{}, err
	}
	// Check the rate and quota of the key first, so that a request above them is refused before its
	// body is read.
	if err := caller.key.Ready(r.Context()); err != nil {
		return answer{}, keyProblem(err)
	}
	body, err := a.readBody(w, r, MaxBodyBytes)
	if err != nil {
		return answer{}, err
	}
	// Enter the throttle before decoding, which uses processors that folding needs.
	ticket, err := a.cfg.Throttle.Enter(r.Context(), len(body))
	if err != nil {
		return answer{}, err
	}
	defer ticket.Leave()
	evs, err := decodeEvents(body, split)
	if err != nil {
		return answer{}, err
	}
	if refused := caller.key.CheckEvents(evs, maxBadEvents); len(refused) > 0 {
		return answer{}, forbiddenEvents(caller.key.Name, refused)
	}
	if err := a.roomForCopies(r.Context(), evs); err != nil {
		return answer{}, err
	}
	if err := ticket.Admit(r.Context(), evs); err != nil {
		return answer{}, behindError(err)
	}
	if err := a.stillAuthorized(r.Context()); err != nil { // the key may have become invalid while Admit waited
		return answer{}, err
	}
	if err := caller.key.Spend(r.Context(), len(evs)); err != nil {
		return answer{}, keyProblem(err)
	}
	for i := range evs {
		evs[i].PublishedBy = caller.key.Name
	}
	ctx, cancel := context.WithTimeout(r.Context(), appendPatience)
	receipt, err := a.cfg.Appender.Append(ctx, evs...)
	cancel()
	if err != nil {
		caller.key.Return(len(evs))
	}
	if bad, ok := errors.AsType[*events.BatchError](err); ok {
		return answer{}, invalidEvents(bad.Events)
	}
	if err != nil {
		return answer{}, &incompleteError{err: err, publishing: true}
	}
	caller.key.Published(len(evs))
	w.Header().Set(PositionHeader, receipt.Position())
	return answer{http.StatusAccepted, accepted{len(evs)}}, nil
}

// roomForCopies reserves memory for the copies of events: an event has one copy in each partition
// of its users. It fails if the events have too many copies, or if there is not enough memory.
func (a *API) roomForCopies(ctx context.Context, evs []events.Event) error {
	if a.cfg.Partitions == nil {
		return nil
	}
	n, limit := 0, a.cfg.Partitions()
	for i := range evs {
		if users := len(evs[i].Data.UserIDs); users > 0 {
			n += min(users, limit)
		} else {
			n += limit // a message to a room is copied to every partition
		}
	}
	if n > maxCopies {
		return &problem{
			Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("the events go to %d partitions, counted for each event, and one request may have at most %d: publish them in several; nothing was stored", n, maxCopies),
		}
	}
	if full, ok := errors.AsType[*inbound.RoomError](inbound.Reserve(ctx, int64(n)*copyBytes)); ok {
		return noRoom(full)
	}
	return nil
}

// behindError converts an error that says that folding is behind into the answer 429.
func behindError(err error) error {
	var late *backpressure.BehindError
	if !errors.As(err, &late) {
		return err
	}
	return &problem{
		Status:     http.StatusTooManyRequests,
		Detail:     late.Error() + "; nothing was stored, publish it again after Retry-After",
		retryAfter: strconv.Itoa(int(math.Ceil(late.RetryAfter.Seconds()))),
	}
}

// splitter splits a body into events: it calls yield for each event, in order, until yield returns
// false. Its errors are safe to show. An *events.InvalidError is about the event after the last
// event for which yield was called.
type splitter func(body []byte, yield func(event []byte) bool) error

func splitterOf(contentType string) (splitter, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err == nil {
		switch mediaType {
		case "application/json":
			return splitJSON, nil
		case "application/cloudevents+json":
			return splitSingle, nil
		case "application/cloudevents-batch+json":
			return splitArray, nil
		case "application/x-ndjson":
			return splitLines, nil
		}
	}
	return nil, &problem{
		Status: http.StatusUnsupportedMediaType,
		Detail: "send events with Content-Type application/json, application/cloudevents+json, application/cloudevents-batch+json or application/x-ndjson",
	}
}

func splitJSON(body []byte, yield func([]byte) bool) error {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		return splitArray(body, yield)
	}
	return splitSingle(body, yield)
}

func splitSingle(body []byte, yield func([]byte) bool) error {
	if len(bytes.TrimSpace(body)) > 0 {
		yield(body)
	}
	return nil
}

func splitLines(body []byte, yield func([]byte) bool) error {
	for line := range bytes.Lines(body) {
		if len(bytes.TrimSpace(line)) > 0 && !yield(line) {
			return nil
		}
	}
	return nil
}

func splitArray(body []byte, yield func([]byte) bool) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body),
		// Accept repeated names here: events.Decode reports them, with the index of the event.
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if dec.PeekKind() != jsontext.KindBeginArray {
		return errors.New("the body is not a JSON array")
	}
	if _, err := dec.ReadToken(); err != nil {
		return brokenArray(err)
	}
	for dec.PeekKind() != jsontext.KindEndArray {
		v, err := dec.ReadValue()
		if err != nil {
			return brokenArray(err)
		}
		if !yield(v) {
			return nil
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return brokenArray(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON array")
	}
	return nil
}

// brokenArray returns an error that says where the JSON of an array is invalid.
func brokenArray(err error) error {
	message := "is not valid JSON"
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntactic) && errors.Is(err, io.ErrUnexpectedEOF):
		message += ": the body ends too early"
	case errors.As(err, &syntactic):
		message += fmt.Sprintf(": %v at byte %d of the body", syntactic.Err, syntactic.ByteOffset)
	}
	return &events.InvalidError{Fields: []events.FieldError{{Message: message}}}
}

// decodeEvents decodes the events of a body. Its error lists up to maxBadEvents invalid events.
func decodeEvents(body []byte, split splitter) ([]events.Event, error) {
	var evs []events.Event
	var bad []events.IndexedError
	n := 0
	err := split(body, func(b []byte) bool {
		if n++; n > MaxEvents {
			return false
		}
		e, err := events.Decode(b)
		if err == nil {
			err = e.CheckReserved()
		}
		if invalid, ok := errors.AsType[*events.InvalidError](err); ok {
			bad = append(bad, events.IndexedError{Index: n - 1, Err: invalid})
		} else {
			evs = append(evs, e)
		}
		return len(bad) < maxBadEvents
	})
	if broken, ok := errors.AsType[*events.InvalidError](err); ok {
		bad = append(bad, events.IndexedError{Index: n, Err: broken})
	}
	switch {
	case n > MaxEvents:
		return nil, &problem{
			Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("the body has more than %d events; nothing was stored", MaxEvents),
		}
	case len(bad) > 0:
		return nil, invalidEvents(bad)
	case err != nil:
		return nil, &problem{Status: http.StatusBadRequest, Detail: err.Error() + "; nothing was stored"}
	case n == 0:
		return nil, &problem{Status: http.StatusBadRequest, Detail: "the body contains no event"}
	}
	return evs, nil
}
