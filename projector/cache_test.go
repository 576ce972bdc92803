package projector

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/keys"
	"github.com/badged/badged/internal/fold/store"
)

// disturb does what can happen to a partition between two batches: another
// owner folds one, rows are changed, the cache loses entries, or keys are merged.
func (d *database) disturb(t *testing.T, rt *rapid.T, p *partition) {
	t.Helper()
	switch rapid.IntRange(0, 5).Draw(rt, "disturbance") {
	case 0:
		if d.rival == nil {
			d.rival = d.newProjector(t, nil)
		}
		stepAgain(t, d.rival.partitions[p.id], rapid.IntRange(1, 3).Draw(rt, "batch of another"))
	case 1:
		d.revise(t, p.id)
	case 2:
		p.cache.Limit = rapid.SampledFrom([]int{0, 3000, 1 << 20}).Draw(rt, "memory")
	case 3:
		d.mergeSome(t, p, rapid.IntRange(0, 12).Draw(rt, "steps of merging"))
	}
}

// notKnown reports whether a batch failed because its owner's knowledge was
// outdated.
func notKnown(err error) bool {
	return errors.Is(err, store.ErrFenced) || errors.Is(err, keys.ErrOutdated)
}

// stepAgain folds a batch, after the owner has read the state of the partition
// again if needed.
func stepAgain(t *testing.T, p *partition, limit int) {
	t.Helper()
	p.size.Events = limit
	for {
		_, _, err := p.step(t.Context())
		if notKnown(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}

// revise raises the revision of a partition, as any writer besides the
// projector does.
func (d *database) revise(t *testing.T, partition int) {
	t.Helper()
	d.exec(t, `UPDATE badged.partitions SET revision = revision + 1 WHERE partition_id = $1`, partition)
}

// missingFor returns the rows that a batch of e would load.
func missingFor(p *partition, e events.Event) store.Missing {
	item, err := store.ItemOf(e, p.id, foldtest.Partitions)
	if err != nil {
		panic(err) // of a test
	}
	_, m := store.StateOf([]store.Item{item}, p.cache, false)
	return m
}

// shortage describes missing rows.
func shortage(m store.Missing) string {
	return fmt.Sprintf("%d users, %d conversations, %d users' unread", len(m.Users), len(m.PairUsers), len(m.ReadAll))
}

// Folded users and conversations are not loaded again, even if they have no
// rows. Unread conversations are, since the cache may not have all of them.
func TestCacheSavesLoading(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], foldtest.User(0, 0)
	d.append(t, foldtest.Deliver("before", 1, ann))
	drain(t, p)
	p.cache.Clear() // as if another process had folded that
	d.append(t, foldtest.Deliver("c", 1, ann), foldtest.Event("x", events.MessageRecalled, "nothing", func(d *events.Data) { d.Seq = 1 }, ann))
	drain(t, p)
	for _, tc := range []struct {
		event events.Event
		want  string
	}{
		{foldtest.Deliver("c", 2, ann), "0 users, 0 conversations, 0 users' unread"},
		{foldtest.Deliver("nothing", 2, ann), "0 users, 0 conversations, 0 users' unread"},
		{foldtest.Event("all", events.UserReadAll, "", nil, ann), "0 users, 0 conversations, 1 users' unread"},
		{foldtest.Deliver("d", 1, ann), "0 users, 1 conversations, 0 users' unread"},
		{foldtest.Deliver("c", 1, foldtest.User(0, 1)), "1 users, 1 conversations, 0 users' unread"},
	} {
		if got := shortage(missingFor(p, tc.event)); got != tc.want {
			t.Errorf("for %s %s of %s: %s have to be loaded, want %s", tc.event.Type, tc.event.Data.ConversationID, tc.event.Data.UserIDs, got, tc.want)
		}
	}
}

// Of users without conversations the cache has everything, and nothing is loaded.
func TestCacheOfNewUsers(t *testing.T) {
	d := newDatabase(t)
	p, ann, bob := d.projector.partitions[0], foldtest.User(0, 0), foldtest.User(0, 1)
	recall := foldtest.Event("x", events.MessageRecalled, "early", func(d *events.Data) { d.Seq = 2 }, ann)
	d.append(t, recall, foldtest.Deliver("c", 1, bob))
	drain(t, p)
	for _, e := range []events.Event{foldtest.Deliver("d", 1, ann, bob), foldtest.Event("all", events.UserReadAll, "", nil, ann, bob)} {
		if got, want := shortage(missingFor(p, e)), shortage(store.Missing{}); got != want {
			t.Errorf("for %s: %s have to be loaded, want %s", e.Type, got, want)
		}
	}

	// A user without a row has a conversation with one.
	if diff := cmp.Diff([]string{"1 0"}, d.lines(t, `SELECT (SELECT count(*) FROM badged.conversations WHERE user_id = $1) || ' ' || (SELECT count(*) FROM badged.users WHERE user_id = $1)`, ann)); diff != "" {
		t.Fatalf("rows of conversations and users (-want +got):\n%s", diff)
	}
	p.cache.Clear()
	d.append(t, foldtest.Deliver("d", 1, ann))
	drain(t, p)
	d.append(t, foldtest.Deliver("early", 1, ann), foldtest.Deliver("early", 2, ann))
	drain(t, p)
	if b := d.badge(t, ann); b.Total != 2 { // without the message that was recalled
		t.Errorf("the total is %d, want 2", b.Total)
	}
	d.checkReplay(t, ann, bob)
}

// Reading everything loads every conversation that it changes, whatever is to be read
// there.
func TestReadAllLoadsWhatItChanges(t *testing.T) {
	read := foldtest.Event("read", events.ConversationRead, "c", foldtest.UpTo(2))
	for name, since := range map[string][]events.Event{
		"an unread message": {},
		"a mark":            {read, foldtest.Event("mark", events.ConversationMarkedUnread, "c", nil)},
		"a marked message":  {read, foldtest.Event("mark", events.ConversationMarkedUnread, "c", foldtest.Seqs(1))},
	} {
		t.Run(name, func(t *testing.T) {
			d, ann := newDatabase(t), foldtest.User(0, 0)
			p := d.projector.partitions[0]
			d.append(t, foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 2, ann))
			for _, e := range since {
				e.Data.UserIDs = []string{ann}
				d.append(t, e)
			}
			drain(t, p)
			if b := d.badge(t, ann); b.Total == 0 {
				t.Fatal("nothing is to be read")
			}
			p.cache.Clear()
			d.append(t, foldtest.Event("all", events.UserReadAll, "", nil, ann))
			drain(t, p)
			if b := d.badge(t, ann); b.Total != 0 {
				t.Errorf("the total is %d after everything was read", b.Total)
			}
			d.checkReplay(t, ann)
		})
	}
}

// The cache is bounded however many users there are, and active users stay in
// it.
func TestCacheIsBounded(t *testing.T) {
	d := newDatabase(t)
	const each = badge.UserWeight + badge.ConversationWeight + badge.RangeWeight
	p := d.newProjector(t, func(cfg *Config) { cfg.CacheBytes = foldtest.Partitions * 20 * each }).partitions[0]
	active := foldtest.User(0, 0)
	for i := range 60 {
		d.append(t, foldtest.Deliver("c", int64(i+1), active), foldtest.Deliver("c", 1, foldtest.User(0, i+1)))
		drain(t, p)
		if n := len(p.cache.Young.Users) + len(p.cache.Old.Users); n > 22 {
			t.Fatalf("after %d others %d users are remembered", i+1, n)
		}
		if p.cache.User(active) == nil {
			t.Fatalf("after %d others the one who is active is forgotten", i+1)
		}
	}
	if p.cache.User(foldtest.User(0, 1)) != nil {
		t.Error("the first of the others is remembered")
	}
	if b := d.badge(t, active); b.Total != 60 || b.Version != 60 {
		t.Errorf("the badge is %+v", b)
	}
}

// The owner uses its cache until the revision shows that another program
// changed rows. Then it reads all rows again, not only those of the batch that
// finds out.
func TestRevisionMakesTheOwnerReadAgain(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], foldtest.User(0, 0)
	d.append(t, foldtest.Deliver("c", 1, ann))
	drain(t, p)
	d.exec(t, `UPDATE badged.users SET total = 50, categories = '{"chat": [50]}' WHERE user_id = $1`, ann)
	d.revise(t, 0)
	d.append(t, foldtest.Deliver("c", 1, foldtest.User(0, 1)))
	drain(t, p)
	d.append(t, foldtest.Deliver("c", 2, ann))
	drain(t, p)
	if b := d.badge(t, ann); b.Total != 51 || b.Version != 2 {
		t.Errorf("the badge is %+v, want what was changed and one more", b)
	}
	if n := count(p.projector.metrics.fenced); n != 0 {
		t.Errorf("%d batches were taken for another projector's", n)
	}
}

// If rows were deleted, the batch fails and is rolled back, and the next one
// reads the tables.
func TestRowsThatAreGone(t *testing.T) {
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	for _, users := range [][]string{{ann}, {ann, bob}} { // one row has a statement of its own
		for _, table := range []string{"users", "conversations"} {
			t.Run(fmt.Sprint(len(users), " ", table), func(t *testing.T) {
				d := newDatabase(t)
				p := d.projector.partitions[0]
				d.append(t, foldtest.Deliver("c", 1, users...))
				drain(t, p)
				d.exec(t, `DELETE FROM badged.`+table+` WHERE user_id = $1`, ann)
				d.append(t, foldtest.Deliver("c", 2, users...))
				d.awaitSettled(t, 0)
				before, position := d.dump(t), d.position(t, 0)
				_, err := p.drain(t.Context())
				want := fmt.Sprintf("1 of %d rows are missing: something other than badged has deleted them", len(users))
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the batch ended with %v", err)
				}
				if d.dump(t) != before || d.position(t, 0) != position {
					t.Error("some of the batch was kept")
				}
				drain(t, p)
				for _, other := range users[1:] {
					if b := d.badge(t, other); b.Total != 2 || b.Version != 2 {
						t.Errorf("the badge of %s is %+v", other, b)
					}
				}
			})
		}
	}
}

// An owner clears its cache when it gives up a partition: another owner may
// change the rows.
func TestCacheGoesWithThePartition(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	p, _, stop := d.startOwner(t, nil)
	d.append(t, foldtest.Deliver("c", 1, ann))
	p.Wake(0)
	d.bus.awaitTotal(t, ann, 1)
	stop()
	if m := missingFor(p.partitions[0], foldtest.Deliver("c", 2, ann)); len(m.Users) != 1 {
		t.Errorf("after the end %+v would have to be loaded", m)
	}
}
