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

// Size limits of bodies, other than [MaxBodyBytes].
const (
	// maxSmallBody is the limit of the bodies of devices, disconnects and merges: three times
	// the longest push subscription.
	maxSmallBody = 16 << 10
	// maxSettingsBody is the limit of the settings of a webhook.
	maxSettingsBody = 256 << 10
	// maxListBody is the limit of lists of users.
	maxListBody = 1 << 20
)

// sizeOf returns a limit in words.
func sizeOf(limit int64) string {
	if limit >= 1<<20 {
		return fmt.Sprintf("%d MiB", limit>>20)
	}
	return fmt.Sprintf("%d KiB", limit>>10)
}

// tooLarge describes the answer to a body that exceeds a limit.
func tooLarge(limit int64) describe.Answer {
	return describe.Problem(http.StatusRequestEntityTooLarge, problem{}, "More than "+sizeOf(limit)+".", "")
}

// readBody reads the body of a request. It then checks again that the request is admitted,
// since reading may take a while. It refuses compressed bodies: limits and rates apply to the
// uncompressed size, which is known only after decompression.
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
	return body, a.still(r.Context())
}

// readAll reads a body into a buffer of the declared length. declared is -1 if the length is
// unknown.
func readAll(body io.Reader, declared int64) ([]byte, error) {
	if declared < 0 {
		return io.ReadAll(body)
	}
	// Read a little before allocating the buffer: the first read waits for memory.
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
	_, err = body.Read(first[:1]) // read the end of the body, so that the connection can be reused
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

// noRoom returns the answer to a request for whose body there is no memory.
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
