package pubsubtest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/badged/badged/pubsub"
)

// Patience is how long a test waits for an event before it fails. It has no effect on a test
// that passes.
const Patience = 3 * time.Minute

// state is embedded by structs for whose changes tests wait. Its mutex guards all fields of the
// struct.
type state struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
}

func newState() state { return state{changed: make(chan struct{})} }

func (s *state) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until ok returns true, for at most patience. It reports whether ok returned true.
// It calls ok with mu locked.
func (s *state) await(patience time.Duration, ok func() bool) bool {
	over := time.After(patience)
	for {
		s.mu.Lock()
		done, changed := ok(), s.changed
		s.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-over:
			return false
		}
	}
}

// Recorder is a [pubsub.Handler] that records its calls. It is safe for
// concurrent use, and detects concurrent calls of its methods.
type Recorder struct {
	inside atomic.Int32 // calls in progress
	serial atomic.Bool  // false after two calls overlapped

	state
	updates []*pubsub.Update
	rooms   []*pubsub.RoomUpdate
	arrived []pubsub.Address // addresses of all updates, in order of arrival
	gaps    int
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder {
	r := &Recorder{state: newState()}
	r.serial.Store(true)
	return r
}

// HandleUpdate implements [pubsub.Handler].
func (r *Recorder) HandleUpdate(u *pubsub.Update) {
	r.record(func() {
		r.updates = append(r.updates, u)
		r.arrived = append(r.arrived, u.Address())
	})
}

// HandleRoom implements [pubsub.Handler].
func (r *Recorder) HandleRoom(u *pubsub.RoomUpdate) {
	r.record(func() {
		r.rooms = append(r.rooms, u)
		r.arrived = append(r.arrived, u.Address())
	})
}

// HandleGap implements [pubsub.Handler].
func (r *Recorder) HandleGap() {
	r.record(func() { r.gaps++ })
}

func (r *Recorder) record(change func()) {
	if r.inside.Add(1) != 1 {
		r.serial.Store(false)
	}
	defer r.inside.Add(-1)
	r.change(change)
}

// Serial reports whether no two calls have overlapped so far.
func (r *Recorder) Serial() bool { return r.serial.Load() }

// Updates returns the updates so far, in order of arrival.
func (r *Recorder) Updates() []*pubsub.Update {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.updates)
}

// Arrived returns the addresses of all updates so far, in order of arrival.
func (r *Recorder) Arrived() []pubsub.Address {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrived)
}

// Versions returns the versions of u's updates so far, in order of arrival.
func (r *Recorder) Versions(u pubsub.Address) []int64 {
	var versions []int64
	for _, got := range r.Updates() {
		if got.Address() == u {
			versions = append(versions, got.Version)
		}
	}
	return versions
}

// Gaps returns how often HandleGap was called so far.
func (r *Recorder) Gaps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaps
}

// AwaitUpdates waits until n updates have arrived, and returns all updates so far.
func (r *Recorder) AwaitUpdates(t testing.TB, n int) []*pubsub.Update {
	t.Helper()
	if !r.await(Patience, func() bool { return len(r.updates) >= n }) {
		t.Fatalf("%d updates arrived, want %d", len(r.Updates()), n)
	}
	return r.Updates()
}

// AwaitRooms waits until n updates of rooms have arrived, and returns all updates of rooms so
// far.
func (r *Recorder) AwaitRooms(t testing.TB, n int) []*pubsub.RoomUpdate {
	t.Helper()
	arrived := r.await(Patience, func() bool { return len(r.rooms) >= n })
	r.mu.Lock()
	defer r.mu.Unlock()
	if !arrived {
		t.Fatalf("%d updates of rooms arrived, want %d", len(r.rooms), n)
	}
	return slices.Clone(r.rooms)
}

// AwaitVersion waits until an update of u with the given version has arrived.
func (r *Recorder) AwaitVersion(t testing.TB, u pubsub.Address, version int64) {
	t.Helper()
	if !r.await(Patience, func() bool {
		return slices.ContainsFunc(r.updates, func(got *pubsub.Update) bool { return got.Address() == u && got.Version == version })
	}) {
		t.Fatalf("version %d of %+v has not arrived; its versions %v have", version, u, r.Versions(u))
	}
}

// AwaitGaps waits until HandleGap was called n times.
func (r *Recorder) AwaitGaps(t testing.TB, n int) {
	t.Helper()
	if !r.await(Patience, func() bool { return r.gaps >= n }) {
		t.Fatalf("HandleGap was called %d times, want %d", r.Gaps(), n)
	}
}

// NewUpdate returns an update of the user `u`. It contains values that a faulty encoding would
// change: numbers that no float64 can represent, an empty name, and unusual text.
func NewUpdate(u pubsub.Address, version int64) pubsub.Update {
	const big = 1<<53 + 1
	return pubsub.Update{
		Badge: pubsub.Badge{
			UserID:     u.ID,
			Epoch:      "e <1> & \"two\" \u2028",
			Version:    version,
			Numbers:    pubsub.Numbers{Total: big, Mentions: 1<<63 - 1, Muted: pubsub.Muted{Total: big}},
			Categories: map[string]pubsub.Numbers{"chat": {Total: big}, "": {Unseen: 1}, "Ünread ✉": {Total: 2, Marked: 1}},
			Levels:     map[string]string{"chat/✉": "none"},
		},
		Partition:   u.Partition,
		BaseVersion: version - 1,
		Conversations: []pubsub.Conversation{
			{
				ConversationID: "c:{1} \\ /",
				Unread:         big,
				Mentions:       3,
				FirstUnreadSeq: 1<<62 + 1,
				ReadSeq:        1 << 62,
				LastSeq:        1<<63 - 1,
				Level:          "mentions",
				Category:       "chat",
				MarkedUnread:   true,
				Version:        version,
			},
			{ConversationID: "c2", Level: "all", Category: "Ünread ✉", Version: version - 1},
		},
		Memberships: []pubsub.Membership{
			{
				Joined: big, ReadSeq: 1 << 62, Level: "mentions", MarkedUnread: true,
				Own: pubsub.Seqs{{First: 1, Last: 1}, {First: 1<<63 - 2, Last: 1<<63 - 1}}, Mentions: -3,
				Room: &NewRoomUpdate(pubsub.Address{ID: "r:{1} \\ /"}, big+1).Room,
			},
			{Level: "all", Room: &pubsub.Room{ConversationID: "r2"}},
		},
	}
}

// NewRoomUpdate returns an update of the room `a`. It contains values that a faulty encoding
// would change.
func NewRoomUpdate(a pubsub.Address, changes int64) *pubsub.RoomUpdate {
	const big = 1<<53 + 1
	return &pubsub.RoomUpdate{
		Room: pubsub.Room{
			ConversationID: a.ID,
			Changes:        changes,
			LastSeq:        1<<63 - 1,
			Category:       "Ünread ✉",
			Since:          big,
			Live:           pubsub.Seqs{{First: big + 2, Last: big + 2}, {First: 1 << 62, Last: 1<<63 - 1}},
			All:            pubsub.Seqs{{First: big + 2, Last: big + 2}},
			ClosedLive:     big,
			ClosedAll:      7,
			ClosedChanges:  1 << 62,
		},
		Epoch:       "e <1> & \"two\" \u2028",
		Partition:   a.Partition,
		BaseChanges: changes - 1,
		AppendedAt:  big,
		TraceParent: "00-1-2-01",
	}
}
