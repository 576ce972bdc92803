package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// feed sends events to the open pages. It disconnects a page that reads too slowly. Such a page
// reconnects, and gets the latest entries of the log again.
type feed struct {
	mu    sync.Mutex
	pages map[chan []byte]struct{}
	// log has the latest entries of the log of badged; a page gets them when it is opened.
	log [][]byte
	// closed is closed when the demo stops.
	closed chan struct{}
}

const (
	pageBuffer = 256
	logKept    = 30
	// pageTimeout bounds one write to a page.
	pageTimeout = 10 * time.Second
)

func newFeed() *feed {
	return &feed{pages: map[chan []byte]struct{}{}, closed: make(chan struct{})}
}

// frame encodes a server-sent event.
func frame(event string, data any) []byte {
	b, err := json.Marshal(data)
	if err != nil { // does not happen: all events of the demo can be encoded
		return nil
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, b)
}

// watched reports whether any page is open.
func (f *feed) watched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pages) > 0
}

func (f *feed) message(m message) { f.send(frame("message", m)) }

func (f *feed) link(l linkState) { f.send(frame("link", l)) }

func (f *feed) transaction(s transactionState) { f.send(frame("transaction", s)) }

func (f *feed) crowd(s crowdState) { f.send(frame("room", s)) }

func (f *feed) phone(p phone) { f.send(frame("phone", p)) }

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

// open registers a page. It returns the channel of the page's events, and the latest entries of
// the log.
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

// serve writes recent messages and entries of the log to a page, and then events of the feed. It
// returns when the page is closed or was disconnected because it reads too slowly, or when the demo
// stops.
func (f *feed) serve(w http.ResponseWriter, r *http.Request, page <-chan []byte, recent []message, log [][]byte) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	write := func(frames ...[]byte) error {
		_ = out.SetWriteDeadline(time.Now().Add(pageTimeout)) // ignore the error: some writers do not support deadlines
		for _, b := range frames {
			_, _ = w.Write(b) // Flush returns the error
		}
		err := out.Flush()
		_ = out.SetWriteDeadline(time.Time{}) // no deadline while there is nothing to write
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
