package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// feed hands what happens to the pages that are open. A page that does not keep
// up is cut off: it comes back by itself, and starts with the last of all.
type feed struct {
	mu    sync.Mutex
	pages map[chan []byte]struct{}
	// log are the last entries, for pages that open.
	log [][]byte
	// closed is closed when the demo stops.
	closed chan struct{}
}

const (
	pageBuffer = 256
	logKept    = 30
	// pageTimeout is how long a page may take to read what it is sent.
	pageTimeout = 10 * time.Second
)

func newFeed() *feed {
	return &feed{pages: map[chan []byte]struct{}{}, closed: make(chan struct{})}
}

// frame returns a server-sent event.
func frame(event string, data any) []byte {
	b, err := json.Marshal(data)
	if err != nil { // nothing that is sent here cannot be encoded
		return nil
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, b)
}

// watched reports whether a page is open.
func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pages) > 0
}

func (f *feed) message(m message) { f.send(frame("message", m)) }

func (f *feed) link(l linkState) { f.send(frame("link", l)) }

func (f *feed) entry(e entry) {
	b := frame("log", e)
	f.mu.Lock()
	f.log = append(f.log, b)
	if len(f.log) > logKept {
		f.log = f.log[len(f.log)-logKept:]
	}
	f.mu.Unlock()
	f.send(b)
}

func (f *feed) send(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for page := range f.pages {
		select {
		case page <- b:
		default:
			delete(f.pages, page)
			close(page)
		}
	}
}

// open adds a page and returns the log up to now.
func (f *feed) open() (page chan []byte, log [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	page = make(chan []byte, pageBuffer)
	f.pages[page] = struct{}{}
	return page, append([][]byte(nil), f.log...)
}

func (f *feed) leave(page chan []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pages, page)
}

// serve writes what has been and then the feed to an open page until it goes,
// cannot keep up, or the demo stops.
func (f *feed) serve(w http.ResponseWriter, r *http.Request, page <-chan []byte, recent []message, log [][]byte) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	write := func(frames ...[]byte) error {
		_ = out.SetWriteDeadline(time.Now().Add(pageTimeout)) // not every writer can
		for _, b := range frames {
			_, _ = w.Write(b) // Flush tells
		}
		err := out.Flush()
		_ = out.SetWriteDeadline(time.Time{}) // waiting may take for ever
		return err
	}
	past := make([][]byte, 0, len(recent)+len(log))
	for _, m := range recent {
		past = append(past, frame("message", m))
	}
	if write(append(past, log...)...) != nil {
		return
	}
	for {
		select {
		case <-f.closed:
			return
		case <-r.Context().Done():
			return
		case b, ok := <-page:
			if !ok || write(b) != nil {
				return
			}
		}
	}
}
