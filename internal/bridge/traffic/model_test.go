package traffic

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// expectedUnread computes the final unread count of each user of a file of
// messages, zeros included, from the messages instead of the events: a message
// is unread if its recipient has sent nothing in the conversation after it.
func expectedUnread(t *testing.T, r io.Reader) map[string]int64 {
	t.Helper()
	type sent struct{ by, to string }
	var messages []sent
	last := map[sent]int{} // the last message from a user to another
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		f := strings.Fields(scanner.Text())
		m := sent{f[0], f[1]}
		messages = append(messages, m)
		last[m] = len(messages)
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	unread := map[string]int64{}
	for i, m := range messages {
		unread[m.by] += 0
		unread[m.to] += 0
		if m.by != m.to && last[sent{m.to, m.by}] <= i {
			unread[m.to]++
		}
	}
	return unread
}

// sums returns the totals of a summary for final unread counts.
func sums(unread map[string]int64) (users, withUnread, total int64) {
	for _, n := range unread {
		users++
		total += n
		if n > 0 {
			withUnread++
		}
	}
	return users, withUnread, total
}

// model is a target that counts in the simplest way: deliveries, reads and
// marks only. It is safe for concurrent use.
type model struct {
	mu       sync.Mutex
	known    map[uuid.UUID]struct{}
	appended []events.Event // without repetitions
	repeated int
	last     int64
	// folded is the last folded transaction; with foldOnAppend, Append moves
	// it.
	folded       int64
	foldOnAppend bool

	delivered map[string]map[string]map[int64]bool // by user, conversation and seq: whether it mentions the user
	read      map[string]map[string]int64
}

func newModel() *model {
	return &model{
		known:        map[uuid.UUID]struct{}{},
		foldOnAppend: true,
		delivered:    map[string]map[string]map[int64]bool{},
		read:         map[string]map[string]int64{},
	}
}

func (m *model) Append(_ context.Context, evs []events.Event) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	if m.foldOnAppend {
		m.folded = m.last
	}
	for _, e := range evs {
		if _, ok := m.known[e.Key()]; ok {
			m.repeated++
			continue
		}
		m.known[e.Key()] = struct{}{}
		m.appended = append(m.appended, e)
		for _, u := range e.Data.UserIDs {
			m.apply(&e, u)
		}
	}
	return m.last, nil
}

func (m *model) apply(e *events.Event, u string) {
	d := &e.Data
	switch e.Type {
	case events.MessageDelivered:
		if d.SenderID == u {
			return
		}
		if m.delivered[u] == nil {
			m.delivered[u] = map[string]map[int64]bool{}
		}
		if m.delivered[u][d.ConversationID] == nil {
			m.delivered[u][d.ConversationID] = map[int64]bool{}
		}
		m.delivered[u][d.ConversationID][d.Seq] = slices.Contains(d.MentionedUserIDs, u)
	case events.ConversationRead:
		if m.read[u] == nil {
			m.read[u] = map[string]int64{}
		}
		m.read[u][d.ConversationID] = max(m.read[u][d.ConversationID], d.UpToSeq)
	}
}

func (m *model) Badges(_ context.Context, users []string, transactionID int64) ([]pubsub.Badge, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(users) == 0 || len(users) > MaxBadges {
		return nil, fmt.Errorf("asked for %d badges", len(users))
	}
	if transactionID > m.folded {
		return nil, ErrNotFolded
	}
	badges := make([]pubsub.Badge, len(users))
	for i, u := range users {
		badges[i].UserID = u
		for conversation, seqs := range m.delivered[u] {
			for seq, mentions := range seqs {
				if seq <= m.read[u][conversation] {
					continue
				}
				badges[i].Total++
				if mentions {
					badges[i].Mentions++
				}
			}
		}
	}
	return badges, nil
}

// testClock is a clock that moves only during sleep. It is safe for concurrent
// use.
type testClock struct {
	mu      sync.Mutex
	t       time.Time
	slept   []time.Duration
	onSleep func() // called without the lock
}

func newTestClock() *testClock { return &testClock{t: time.Unix(1_000_000, 0)} }

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func (c *testClock) sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	c.t = c.t.Add(d)
	c.slept = append(c.slept, d)
	c.mu.Unlock()
	if c.onSleep != nil {
		c.onSleep()
	}
	return ctx.Err()
}

// writeFile returns the path of a new file.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// chatter returns about n messages among a few users, the same every time.
func chatter(n int) string {
	var b strings.Builder
	state := uint32(1)
	next := func(n uint32) uint32 {
		state = state*1664525 + 1013904223
		return (state >> 16) % n
	}
	for i := range n {
		src, dst := next(12), next(12)
		fmt.Fprintf(&b, "u%d u%d %d\n", src, dst, 1_082_040_961+i)
	}
	return b.String()
}
