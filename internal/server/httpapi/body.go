package httpapi

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/server/inbound"
)

// Limits of the size of bodies in bytes, other than [MaxBodyBytes].
const (
	// maxSmallBody applies to registrations of devices, disconnects and merges. It is three times
	// the greatest size of a push subscription.
	maxSmallBody = 16 << 10
	// maxSettingsBody applies to the settings of a webhook.
	maxSettingsBody = 256 << 10
	// maxListBody applies to lists of users, and to the requests that start jobs.
	maxListBody = 1 << 20
)

// sizeOf returns a limit as text, such as "16 KiB".
func sizeOf(limit int64) string {
	if limit >= 1<<20 {
		return fmt.Sprintf("%d MiB", limit>>20)
	}
	return fmt.Sprintf("%d KiB", limit>>10)
}

// tooLarge describes the answer to a body that exceeds limit.
func tooLarge(limit int64) describe.Answer {
	return describe.Problem(http.StatusRequestEntityTooLarge, problem{}, "More than "+sizeOf(limit)+".", "")
}

// readBody reads the body of a request. Reading may take long, so readBody then checks that the key
// or token of the request is still valid. It refuses compressed bodies, since the limits apply to
// the uncompressed size, which is not known before decompression.
func (a *API) readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, &problem{
			Status: http.StatusUnsupportedMediaType,
			Detail: fmt.Sprintf("the body has the Content-Encoding %.20q: send it as it is, without that header; nothing was stored", encoding),
		}
	}
	over := &problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the body has more than %d bytes; nothing was stored", limit)}
	if r.ContentLength > limit {
		return nil, over
	}
	body, err := readAll(http.MaxBytesReader(w, r.Body, limit), r.ContentLength)
	var full *inbound.RoomError
	switch {
	case errors.As(err, &full):
		return nil, noRoom(full)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &problem{Status: http.StatusRequestTimeout, Detail: "the body came too slowly; nothing was stored"}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, over
	}
	if err != nil {
		return nil, &problem{Status: http.StatusBadRequest, Detail: "the body could not be read to its end; nothing was stored"}
	}
	return body, a.stillAuthorized(r.Context())
}

// refuseBody is for routes that read no body. It fails if a request has a body, or announces a body
// that cannot be read: the client may rely on a field in it, such as a dry run. The error lists
// `parameters`, the names of the query parameters of the route.
func refuseBody(r *http.Request, parameters []string) error {
	if r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength < 0 { // it is not known yet whether the body is empty
		var first [1]byte
		if n, err := io.ReadFull(r.Body, first[:]); n == 0 && errors.Is(err, io.EOF) {
			return nil
		}
	}
	detail := "the route has no body: send none"
	if len(parameters) > 0 {
		detail += ", and give in the query what it takes: " + strings.Join(parameters, ", ")
	}
	return badRequest(detail)
}

// readAll reads a body. declared is its Content-Length, or -1 if the length is unknown. If the
// length is known, readAll allocates a buffer of exactly this length.
func readAll(body io.Reader, declared int64) ([]byte, error) {
	if declared < 0 {
		return io.ReadAll(body)
	}
	// Read a few bytes before allocating the buffer: the first read blocks until the server has
	// memory for the body.
	var first [512]byte
	n, err := body.Read(first[:min(declared, int64(len(first)))])
	b := make([]byte, declared)
	n = copy(b, first[:n])
	if err == nil && n < len(b) {
		_, err = io.ReadFull(body, b[n:])
	} else if errors.Is(err, io.EOF) && n == len(b) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	_, err = body.Read(first[:1]) // read up to EOF, so that the connection can be reused
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

// noRoom returns the answer to a request whose body is not read, since the memory for bodies is in
// use.
func noRoom(e *inbound.RoomError) error {
	p := &problem{
		Status: http.StatusServiceUnavailable, Detail: e.Error() + "; nothing was stored",
		retryAfter: strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))),
	}
	if e.Own {
		p.Status = http.StatusTooManyRequests
	}
	return p
}
