package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/gateway/internal/view"
	"github.com/badged/badged/gateway/internal/workers"
	"github.com/badged/badged/pubsub"
)

// wire is a bus whose messages a test loses, repeats and delays. It is the
// subscription of a hub.
type wire struct {
	hub     *hub
	joined  map[pubsub.Address]bool
	waiting []any // updates of joined addresses, oldest first
	passed  []any // the latest that the hub got
}

func (w *wire) Join(_ context.Context, addresses ...pubsub.Address) error {
	for _, a := range addresses {
		w.joined[a] = true
	}
	return nil
}

func (w *wire) Leave(_ context.Context, addresses ...pubsub.Address) error {
	for _, a := range addresses {
		delete(w.joined, a)
	}
	return nil
}

func (w *wire) Close() error { return nil }

// publish queues what is published for joined addresses.
func (w *wire) publish(p published) {
	for i := range p.users {
		if w.joined[p.users[i].Address()] {
			w.waiting = append(w.waiting, &p.users[i])
		}
	}
	for i := range p.rooms {
		if w.joined[p.rooms[i].Address()] {
			w.waiting = append(w.waiting, &p.rooms[i])
		}
	}
}

// deliver delivers that many messages.
func (w *wire) deliver(n int) {
	for _, m := range w.waiting[:n] {
		w.handle(m)
		w.passed = append(w.passed, m)
	}
	w.waiting = w.waiting[n:]
}

func (w *wire) handle(message any) {
	switch m := message.(type) {
	case *pubsub.Update:
		w.hub.HandleUpdate(m)
	case *pubsub.RoomUpdate:
		w.hub.HandleRoom(m)
	}
}

// tell sends members the newest states of rooms: of all rooms if which is nil, else of those for
// which it returns true.
func (w *wire) tell(which func() bool) {
	rooms := slices.SortedFunc(maps.Values(w.hub.rooms.byAddress), func(a, b *room) int { return cmp.Compare(a.address.ID, b.address.ID) })
	for _, r := range rooms {
		if r.dirty && (which == nil || which()) {
			w.hub.tell(r, nil)
		}
	}
}

// phone is a client of a user.
type phone struct {
	categories    map[string]pubsub.Numbers
	levels        map[string]string
	session       *session
	epoch         string
	version       int64
	conversations map[string]pubsub.Conversation
}

// connect adds a session of a user to a hub.
func connect(t *rapid.T, h *hub, user string) *phone {
	s := &session{userID: user}
	s.mailbox = view.NewMailbox(func() {})
	if err := h.join(context.Background(), s, pubsub.Address{ID: user, Partition: 3}); err != nil {
		t.Fatal(err)
	}
	return &phone{session: s, conversations: map[string]pubsub.Conversation{}, categories: map[string]pubsub.Numbers{}}
}

// take does what a state sender does with its mailbox. It calls the function `meanwhile` after
// each read of the tables.
func (p *phone) take(t *rapid.T, h *hub, db *halls, meanwhile func()) {
	d := p.session.mailbox.Take()
	if d.Badge != nil {
		p.apply(t, db, d.Badge, d.Conversations, false)
	}
	for d.Sync {
		began := h.rooms.now()
		reading := p.session.mailbox.Read()
		held := pubsub.Held{UserID: p.session.userID, Epoch: p.epoch, Version: p.version}
		if reading.Whole {
			held.Epoch = ""
		}
		state := db.read(held)
		meanwhile()
		if state.Epoch != p.epoch || state.Version != p.version || reading.Whole {
			p.categories, p.levels = map[string]pubsub.Numbers{}, nil // what the tables say is complete
			p.apply(t, db, &state.Badge, state.Conversations, state.Whole)
		}
		settled, err := h.settle(context.Background(), p.session, &state, began, reading.Whole, 0)
		if err != nil {
			t.Fatal(err)
		}
		d.Sync = !settled
	}
}

// apply takes a frame, and checks it.
func (p *phone) apply(t *rapid.T, db *halls, b *pubsub.Badge, conversations []pubsub.Conversation, whole bool) {
	if !whole && b.Version <= p.version {
		t.Fatalf("%s: version %d came after version %d", b.UserID, b.Version, p.version)
	}
	if whole {
		p.conversations = map[string]pubsub.Conversation{}
	}
	before := p.version
	p.epoch, p.version = b.Epoch, b.Version
	for _, c := range conversations {
		if !whole && c.Version <= before { // a state sender filters these out
			continue
		}
		if c.Version > b.Version {
			t.Fatalf("%s: conversation %s has version %d of %d", b.UserID, c.ConversationID, c.Version, b.Version)
		}
		if !db.seen[b.UserID][shown(c)] {
			t.Fatalf("%s: the tables never had %+v", b.UserID, c)
		}
		p.conversations[c.ConversationID] = c
	}
	maps.Copy(p.categories, b.Categories)
	maps.DeleteFunc(p.categories, func(_ string, n pubsub.Numbers) bool { return n == pubsub.Numbers{} })
	if b.Levels != nil {
		p.levels = b.Levels
	}
	sum := pubsub.Badge{Levels: p.levels}
	tally(&sum, slices.Collect(maps.Values(p.conversations)))
	if b.Numbers != sum.Numbers || !maps.Equal(p.categories, sum.Categories) {
		t.Fatalf("%s: at version %d the badge is %+v with %+v; the parts add up to %+v with %+v\n%+v", b.UserID, b.Version,
			b.Numbers, p.categories, sum.Numbers, sum.Categories, p.conversations)
	}
}

// differs reports how what the client holds differs from the tables.
func (p *phone) differs(db *halls) string {
	state := db.read(pubsub.Held{UserID: p.session.userID, Epoch: db.epoch, Version: -1})
	want := map[string]string{}
	for _, c := range state.Conversations {
		if p.conversations[c.ConversationID] == (pubsub.Conversation{}) && c.Unread == 0 && !c.MarkedUnread {
			continue // a client does not learn of conversations with nothing to show
		}
		want[c.ConversationID] = shown(c)
	}
	got := map[string]string{}
	for id, c := range p.conversations {
		got[id] = shown(c)
	}
	return gocmp.Diff(want, got)
}

// compareAll does what reconciliation does.
func compareAll(h *hub, db *halls, phones []*phone) {
	for _, p := range phones {
		h.renew([]string{p.session.userID})
		before := p.session.mailbox.Mark()
		state := db.read(pubsub.Held{UserID: p.session.userID})
		tables := view.HoldingOf(&state.Badge)
		if p.session.mailbox.Compare(before, tables, 0) == view.Behind {
			p.session.mailbox.Repair(tables)
		}
	}
}

// inThree is the partition of all rooms of these tests.
func inThree(string) int { return 3 }

// Whatever the bus loses, repeats and delays, the sums in each frame are right, each conversation
// in it is one that the tables had, versions only grow, and in the end every client has the state
// of the tables. One user has two clients, other users have one.
func TestAccountsConverge(t *testing.T) {
	users, rooms := []string{"ann", "ben", "eve"}, []string{"r1", "r2"}
	rapid.Check(t, func(t *rapid.T) {
		db := newHalls()
		h := newHub(&Config{Metrics: NewMetrics(nil), RoomsOf: inThree}, new(workers.Pool))
		w := &wire{hub: h, joined: map[pubsub.Address]bool{}}
		h.subscription = w
		var phones []*phone
		commits := func() { w.publish(db.draw(t, users, rooms)) }
		some := func() { w.deliver(rapid.IntRange(0, len(w.waiting)).Draw(t, "messages")) }
		meanwhile := func() {
			switch rapid.IntRange(0, 6).Draw(t, "meanwhile") {
			case 0:
				commits()
			case 1:
				commits()
				w.deliver(len(w.waiting))
				w.tell(nil)
			case 2:
				some()
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit":  func(*rapid.T) { commits() },
			"commits": func(*rapid.T) { commits(); commits(); w.deliver(len(w.waiting)) },
			"connect": func(t *rapid.T) {
				if len(phones) < 6 {
					phones = append(phones, connect(t, h, rapid.SampledFrom(users).Draw(t, "user")))
				}
			},
			"disconnect": func(t *rapid.T) {
				if len(phones) > 0 {
					i := rapid.IntRange(0, len(phones)-1).Draw(t, "phone")
					if err := h.leave(context.Background(), phones[i].session, phones[i].session.userID); err != nil {
						t.Fatal(err)
					}
					phones = slices.Delete(phones, i, i+1)
				}
			},
			"deliver": func(*rapid.T) { some() },
			"tell":    func(t *rapid.T) { w.tell(func() bool { return rapid.Bool().Draw(t, "room") }) },
			"repeat": func(t *rapid.T) {
				if n := len(w.passed); n > 0 {
					w.handle(w.passed[rapid.IntRange(max(0, n-8), n-1).Draw(t, "message")])
				}
			},
			"lose": func(t *rapid.T) { // the connection of the subscription breaks
				n := rapid.IntRange(0, len(w.waiting)).Draw(t, "lost")
				w.waiting = w.waiting[n:]
				h.HandleGap()
			},
			"drop": func(*rapid.T) { // the projector cannot publish
				if rapid.Bool().Draw(t, "drop") {
					db.draw(t, users, rooms)
				}
			},
			"take": func(t *rapid.T) {
				if len(phones) > 0 {
					rapid.SampledFrom(phones).Draw(t, "phone").take(t, h, db, meanwhile)
				}
			},
			"compare": func(*rapid.T) { compareAll(h, db, phones) },
		})
		w.deliver(len(w.waiting))
		w.tell(nil)
		compareAll(h, db, phones)
		for _, p := range phones {
			p.take(t, h, db, func() {})
			if diff := p.differs(db); diff != "" {
				t.Fatalf("%s ends with another state than the tables (-tables +client):\n%s", p.session.userID, diff)
			}
			if d := p.session.mailbox.Take(); d.Badge != nil || d.Sync {
				t.Fatalf("%s is up to date and has more pending: %+v", p.session.userID, d)
			}
		}
		checkSeats(t, h, w)
	})
}

// checkSeats checks that the hub subscribes only to the rooms of its members, and that the seats
// are consistent.
func checkSeats(t *rapid.T, h *hub, w *wire) {
	for address, r := range h.rooms.byAddress {
		if len(r.seats) == 0 || !w.joined[address] {
			t.Fatalf("room %s is kept for %d members, joined: %v", address.ID, len(r.seats), w.joined[address])
		}
		for i, s := range r.seats {
			if s.index != i || s.room != r || s.member.seats[address.ID] != s || h.users[s.member.user.user.ID] != s.member.user {
				t.Fatalf("seat %d of room %s is wrong", i, address.ID)
			}
		}
	}
	for address := range w.joined {
		if address.Room && h.rooms.byAddress[address] == nil || !address.Room && h.users[address.ID] == nil {
			t.Fatalf("the bus still has %+v", address)
		}
	}
}
