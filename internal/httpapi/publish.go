package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/badged/badged/events"
)

// Limits of one request.
const (
	// MaxBodyBytes is the most that a request may have in its body.
	MaxBodyBytes = 8 << 20
	// MaxEvents is the most events in one request.
	MaxEvents = 10_000
	// bodyTimeout is how long a body may take to arrive.
	bodyTimeout = 30 * time.Second
	// maxBadEvents is how many bad events one answer names.
	maxBadEvents = 100
)

// PositionHeader carries the position of what a request appended, as at_least
// takes it.
const PositionHeader = "Badged-Position"

// accepted is the answer to events that are durable.
type accepted struct {
	Accepted int `json:"accepted" minimum:"1" doc:"How many events were appended."`
}

// postEvents appends one event, a JSON array of events or a line of JSON for
// each: all of them, or none.
func (a *API) postEvents(w http.ResponseWriter, r *http.Request) error {
	split, err := splitterOf(r.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	evs, err := decodeEvents(body, split)
	if err != nil {
		return err
	}
	receipt, err := a.cfg.Appender.Append(r.Context(), evs...)
	var bad *events.BatchError
	if errors.As(err, &bad) {
		return invalidEvents(bad.Events)
	}
	if err != nil {
		return err
	}
	w.Header().Set(PositionHeader, strconv.FormatInt(receipt.TransactionID, 10))
	writeJSON(w, http.StatusAccepted, "application/json", accepted{len(evs)})
	return nil
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// Not for the whole server: other requests may last.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout)) // tests record answers without a connection
	defer connection.SetReadDeadline(time.Time{})               //nolint:errcheck // as above
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, &problem{Status: http.StatusRequestTimeout, Detail: "the body took longer than " + bodyTimeout.String() + "; nothing was stored"}
	}
	if errors.As(err, &tooLarge) {
		return nil, &problem{
			Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("the body has more than %d bytes; nothing was stored", MaxBodyBytes),
		}
	}
	if err != nil {
		return nil, &problem{Status: http.StatusBadRequest, Detail: "the body could not be read to its end; nothing was stored"}
	}
	return body, nil
}

// splitter calls yield for each event of a body, in order, until it returns
// false. Its errors are safe to show; a *events.InvalidError is about the event
// after the last that was yielded.
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
		// Duplicate names are the event's problem, which names its index.
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
		return errors.New("something follows the JSON array")
	}
	return nil
}

// brokenArray says where the JSON of an array breaks.
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

// decodeEvents reads the events of a body and names every bad one.
func decodeEvents(body []byte, split splitter) ([]events.Event, error) {
	var evs []events.Event
	var bad []events.IndexedError
	n := 0
	err := split(body, func(b []byte) bool {
		if n++; n > MaxEvents {
			return false
		}
		e, err := events.Decode(b)
		if err == nil && e.Type == events.ConversationExpired {
			err = &events.InvalidError{Fields: []events.FieldError{{Field: "type", Message: "is written by badged itself only"}}}
		}
		var invalid *events.InvalidError
		if errors.As(err, &invalid) {
			bad = append(bad, events.IndexedError{Index: n - 1, Err: invalid})
		} else {
			evs = append(evs, e)
		}
		return len(bad) < maxBadEvents
	})
	var broken *events.InvalidError
	if errors.As(err, &broken) {
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
		return nil, &problem{Status: http.StatusBadRequest, Detail: "the body holds no event"}
	}
	return evs, nil
}
