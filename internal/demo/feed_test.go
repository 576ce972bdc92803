package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// page is a browser page that follows the feed.
type page struct {
	res    *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

// follow opens the feed of the demo at url, until close is called or a minute
// has passed, so that a page that misses something fails.
func follow(ctx context.Context, url string) (*page, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/demo/feed", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	res, err := http.DefaultClient.Do(r) //nolint:bodyclose // close does
	if err != nil {
		cancel()
		return nil, err
	}
	return &page{res, bufio.NewScanner(res.Body), cancel}, nil
}

func openPage(t *testing.T, url string) *page {
	t.Helper()
	p, err := follow(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	if got := p.res.Header.Get("Content-Type"); p.res.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Fatalf("feed: %d %s", p.res.StatusCode, got)
	}
	return p
}

func (p *page) close() {
	p.cancel()
	_ = p.res.Body.Close() // cut anyway
}

// next returns the next event of a type, or "" at the end of the feed.
func (p *page) next(event string) string {
	for p.lines.Scan() {
		if p.lines.Text() != "event: "+event {
			continue
		}
		if !p.lines.Scan() {
			return ""
		}
		return strings.TrimPrefix(p.lines.Text(), "data: ")
	}
	return ""
}

func (p *page) nextMessage(t *testing.T) message {
	t.Helper()
	var m message
	if data := p.next("message"); json.Unmarshal([]byte(data), &m) != nil {
		t.Fatalf("message is %q, %v", data, p.lines.Err())
	}
	return m
}

// serve serves a demo without running its simulation.
func serve(t *testing.T, f *fixture) string {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return server.URL
}

func TestNewPageGetsRecentAndNewMessages(t *testing.T) {
	f := newFixture(t)
	f.mustSend(t, "lunch", "ada", "Lunch?")
	f.mustSend(t, "lunch", "ben", "Yes")
	for i := range logKept + 5 {
		f.feed.entry(entry{ID: string(rune('A' + i))})
	}
	p := openPage(t, serve(t, f))
	for _, want := range []string{"Lunch?", "Yes"} {
		if m := p.nextMessage(t); m.Text != want || m.MentionedUserIDs == nil {
			t.Errorf("message is %+v, want %s", m, want)
		}
	}
	for i := range logKept { // the latest
		var e entry
		if data := p.next("log"); json.Unmarshal([]byte(data), &e) != nil || e.ID != string(rune('A'+i+5)) {
			t.Fatalf("entry %d is %s", i, data)
		}
	}
	// From now on the page receives events.
	f.feed.message(message{Text: "Where?"})
	if m := p.nextMessage(t); m.Text != "Where?" {
		t.Errorf("message is %+v, want what was sent just now", m)
	}
	f.feed.entry(entry{ID: "now"})
	if data := p.next("log"); !strings.Contains(data, `"id":"now"`) {
		t.Errorf("entry is %s", data)
	}
}

func TestMessageSentWhileAPageOpens(t *testing.T) {
	f := newFixture(t)
	url := serve(t, f)
	// The lock blocks the page's request where it reads the messages.
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }() // no effect after the commit
	pgtest.Exec(t, tx, `LOCK TABLE demo.messages IN ACCESS EXCLUSIVE MODE`)
	var p *page
	var opening sync.WaitGroup
	opening.Go(func() { p, err = follow(t.Context(), url) })
	eventually(t, "the page reads", func() bool {
		return f.count(t, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'demo.messages'::regclass`) > 0
	})
	f.feed.message(message{Text: "just now"})
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if opening.Wait(); err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if m := p.nextMessage(t); m.Text != "just now" {
		t.Errorf("message is %+v, want the one sent meanwhile", m)
	}
}

func TestPageThatDoesNotReadIsCutOff(t *testing.T) {
	f := newFeed()
	slow, _ := f.open()
	fast, _ := f.open()
	for range pageBuffer + 1 {
		f.message(message{Text: "x"})
		<-fast
	}
	n := 0
	for range slow { // until it is closed
		n++
	}
	if n != pageBuffer {
		t.Errorf("the slow page got %d frames, want the %d that it has room for", n, pageBuffer)
	}
	f.message(message{Text: "y"})
	if b := string(<-fast); !strings.Contains(b, `"text":"y"`) {
		t.Errorf("the fast page gets %s", b)
	}
	if !f.watched() {
		t.Error("the fast page was dropped")
	}
	f.leave(fast)
	f.leave(slow) // as its handler does
	if f.watched() {
		t.Error("no page is open, but one is counted")
	}
}

// stuckPage is the writer of a page whose computer sleeps: the second write
// blocks until the deadline.
type stuckPage struct {
	header   http.Header
	writes   int
	deadline time.Time
	flushed  chan struct{}
}

func (p *stuckPage) Header() http.Header { return p.header }
func (p *stuckPage) WriteHeader(int)     {}

func (p *stuckPage) SetWriteDeadline(d time.Time) error {
	p.deadline = d
	return nil
}

func (p *stuckPage) Write(b []byte) (int, error) {
	p.writes++
	return len(b), nil
}

func (p *stuckPage) FlushError() error {
	switch {
	case p.writes == 0:
		p.flushed <- struct{}{}
		return nil
	case p.deadline.IsZero():
		return errors.New("the write has no deadline")
	}
	return os.ErrDeadlineExceeded
}

func TestPageThatSleepsIsLeft(t *testing.T) {
	f := newFeed()
	out := &stuckPage{header: http.Header{}, flushed: make(chan struct{}, 1)}
	frames, _ := f.open()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.serve(out, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/demo/feed", nil), frames, nil, nil)
	}()
	<-out.flushed // the page is open
	f.message(message{Text: "x"})
	<-done
	if out.writes != 1 {
		t.Errorf("%d writes, want one that fails", out.writes)
	}
}

func TestPageEndsWithTheDemo(t *testing.T) {
	f := newFixture(t)
	url := serve(t, f)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	p := openPage(t, url)
	// A new page gets the log; an open page makes people talk.
	if data := p.next("log"); !strings.Contains(data, " set ") {
		t.Errorf("the log starts with %s", data)
	}
	if m := p.nextMessage(t); m.Seq != 1 || m.Text == "" {
		t.Errorf("message is %+v, want the first of a conversation", m)
	}
	stop()
	running.Wait()
	for p.next("message") != "" { // drain the events in flight
	}
	if err := p.lines.Err(); err != nil {
		t.Errorf("the feed ends with %v", err)
	}
}

func TestTalk(t *testing.T) {
	f := newFixture(t)
	for range 40 {
		if err := f.talk(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	messages, err := f.store.recent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(messages) < 30 {
		t.Errorf("%d messages, want most of 40", len(messages))
	}
	for _, m := range messages {
		c := mustConversation(t, m.ConversationID)
		isMember := false
		for _, id := range c.Members {
			isMember = isMember || id == m.SenderID
		}
		if isMember != (c.Kind != "feed") || !isMember && m.SenderID != bot {
			t.Errorf("%s talks in %s", m.SenderID, c.ConversationID)
		}
		for _, id := range m.MentionedUserIDs {
			if id == m.SenderID {
				t.Errorf("%s mentions itself: %s", id, m.Text)
			}
		}
	}
}
