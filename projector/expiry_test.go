package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/projector/expiry"
)

func in(category string, e events.Event) events.Event {
	e.Data.Category = category
	return e
}

// Of each category just what has been left unread for longer than that category
// allows, and nothing of a category without a limit.
func TestExpiresExactlyWhatIsStale(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(1, 0)
	const day = 24 * time.Hour
	for name, e := range map[time.Duration]events.Event{
		10 * day:                foldtest.Deliver("old chat", 1, ann),
		week + time.Hour:        foldtest.Deliver("just stale", 1, ann),
		week:                    foldtest.Deliver("not for another half hour", 1, ann),
		6 * day:                 foldtest.Deliver("young chat", 1, ann),
		2*day + time.Second:     foldtest.InCategory("likes", foldtest.Deliver("old likes", 1, ann)),
		20 * time.Hour:          foldtest.InCategory("likes", foldtest.Deliver("young likes", 1, ann)),
		300 * day:               foldtest.InCategory("system", foldtest.Deliver("system", 1, ann)),
		10*day + 1*time.Second:  foldtest.Deliver("read", 1, ann),
		10*day + 2*time.Second:  foldtest.Deliver("read in part", 1, ann),
		10*day + 3*time.Second:  foldtest.Deliver("muted", 1, ann),
		10*day + 4*time.Second:  foldtest.Deliver("mentions only", 1, ann),
		10*day + 5*time.Second:  foldtest.Deliver("marked long ago", 1, ann),
		10*day + 6*time.Second:  foldtest.Deliver("marked just now", 1, ann),
		10*day + 7*time.Second:  foldtest.Deliver("left", 1, ann),
		10*day + 8*time.Second:  foldtest.Deliver("delivered again", 1, ann),
		10*day + 9*time.Second:  foldtest.Deliver("recalled", 1, ann),
		10*day + 10*time.Second: foldtest.InCategory("likes", foldtest.Deliver("now a chat", 1, ann)),
	} {
		d.appendAgo(t, name, e)
	}
	late := foldtest.Deliver("delivered again", 5, ann)
	late.ID, late.Time = "late", foldtest.Noon.Add(-300*day) // when it was sent is of no account
	mention := foldtest.Deliver("mentions only", 2, ann)
	mention.Data.MentionedUserIDs = []string{ann}
	d.appendAgo(t, 9*day,
		foldtest.Deliver("delivered again", 9, ann),
		foldtest.Deliver("read in part", 2, ann),
		foldtest.Deliver("now a chat", 2, ann),
		mention,
		foldtest.Event("1", events.ConversationRead, "read", foldtest.UpTo(1), ann),
		foldtest.Event("2", events.ConversationRead, "read in part", foldtest.UpTo(1), ann),
		foldtest.Event("3", events.ConversationLevelSet, "muted", foldtest.Level(events.LevelNone), ann),
		foldtest.Event("4", events.ConversationLevelSet, "mentions only", foldtest.Level(events.LevelMentions), ann),
		foldtest.Event("5", events.ConversationRead, "marked long ago", foldtest.UpTo(1), ann),
		foldtest.Event("6", events.ConversationMarkedUnread, "marked long ago", nil, ann),
		foldtest.Event("7", events.ConversationRead, "marked just now", foldtest.UpTo(1), ann),
		foldtest.Event("8", events.ConversationLeft, "left", nil, ann),
		foldtest.Event("9", events.MessageRecalled, "recalled", func(d *events.Data) { d.Seq = 1 }, ann))
	d.appendAgo(t, time.Hour, late, foldtest.Event("10", events.ConversationMarkedUnread, "marked just now", nil, ann))
	d.fold(t)

	x := d.newExpiry(t, func(cfg *expiry.Config) { cfg.After["likes"] = day })
	d.sweep(t, x)
	same(t, "still unread", []string{
		"delivered again: 3", "marked just now: marked", "not for another half hour: 1", "system: 1", "young chat: 1", "young likes: 1",
	}, d.unread(t))
	found := d.expired(t)
	slices.Sort(found)
	same(t, "expired", []string{
		`just stale up to 1 for ["` + ann + `"]`,
		`marked long ago up to 1 for ["` + ann + `"]`,
		`mentions only up to 2 for ["` + ann + `"]`,
		`muted up to 1 for ["` + ann + `"]`,
		`now a chat up to 2 for ["` + ann + `"]`,
		`old chat up to 1 for ["` + ann + `"]`,
		`old likes up to 1 for ["` + ann + `"]`,
		`read in part up to 2 for ["` + ann + `"]`,
	}, found)
	if n := count(x.Cfg.Metrics.Conversations); n != 8 {
		t.Errorf("the metric says %d, want 8", n)
	}
	if b := d.badge(t, ann); b.Total != 8 || b.Mentions != 0 {
		t.Errorf("total %d and %d mentions, want 8 and 0", b.Total, b.Mentions)
	}
	d.checkSums(t)

	before := d.dump(t)
	d.sweep(t, x)
	if got := d.expired(t); len(got) != 8 || d.dump(t) != before {
		t.Errorf("there was nothing left, and the second sweep expired it:\n%s", strings.Join(got, "\n"))
	}
}

// The star stands for what is not named, however it is called.
func TestOtherCategoriesExpire(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(1, 0)
	d.appendAgo(t, 2*week, foldtest.Deliver("chat", 1, ann), foldtest.InCategory("likes", foldtest.Deliver("likes", 1, ann)), foldtest.InCategory("*", foldtest.Deliver("star", 1, ann)), foldtest.InCategory("system", foldtest.Deliver("system", 1, ann)))
	d.appendAgo(t, week/2, foldtest.InCategory("likes", foldtest.Deliver("young likes", 1, ann)), foldtest.InCategory("zebra", foldtest.Deliver("zebra", 1, ann)))
	d.fold(t)
	d.sweep(t, d.newExpiry(t, func(cfg *expiry.Config) {
		cfg.After = map[string]time.Duration{"*": week, "chat": 3 * week, "zebra": time.Hour, "nobody's": time.Hour}
	}))
	same(t, "still unread", []string{"chat: 1", "young likes: 1"}, d.unread(t))
}

// One event for everybody in a partition who was left at the same message.
func TestExpiryGroupsUsers(t *testing.T) {
	d := newDatabase(t)
	a, b, c, other := foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2), foldtest.User(3, 0)
	d.appendAgo(t, 2*week, foldtest.Deliver("team", 1, a, b, c, other), foldtest.Deliver("team", 2, a, b, other))
	d.fold(t)
	d.sweep(t, d.newExpiry(t, nil))
	users := []string{a, b}
	slices.Sort(users)
	got := d.expired(t)
	slices.Sort(got)
	same(t, "expired", []string{
		`team up to 1 for ["` + c + `"]`,
		`team up to 2 for ["` + strings.Join(users, `","`) + `"]`,
		`team up to 2 for ["` + other + `"]`,
	}, got)
	same(t, "still unread", []string{}, d.unread(t))
}

// What comes after the sweep has looked stays unread, on whichever side of the
// sweep's event it gets into the log.
func TestWhatArrivesMeanwhileStaysUnread(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("before the event: ", first), func(t *testing.T) {
			d := newDatabase(t)
			ann := foldtest.User(2, 0)
			d.appendAgo(t, 2*week, foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 2, ann))
			d.fold(t)
			d.sweep(t, d.newExpiry(t, func(cfg *expiry.Config) {
				cfg.Log = appender(func(evs ...events.Event) (events.Receipt, error) {
					if first {
						d.append(t, foldtest.Deliver("c", 3, ann))
					}
					receipt := d.append(t, evs...)
					if !first {
						d.append(t, foldtest.Deliver("c", 3, ann))
					}
					d.fold(t)
					return receipt, nil
				})
			}))
			same(t, "expired", []string{`c up to 2 for ["` + ann + `"]`}, d.expired(t))
			same(t, "still unread", []string{"c: 1"}, d.unread(t))
		})
	}
}

// A mark makes a conversation young again, and it can expire once more: the
// event is another one, though it reads up to the same message.
func TestMarksExpireToo(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(2, 0)
	d.appendAgo(t, week+2*time.Hour, foldtest.Deliver("c", 1, ann))
	d.fold(t)
	d.sweep(t, d.newExpiry(t, nil))
	d.appendAgo(t, week+time.Hour,
		foldtest.Event("1", events.ConversationMarkedUnread, "c", nil, ann),
		foldtest.Event("2", events.ConversationMarkedUnread, "never delivered to", nil, ann))
	d.fold(t)
	d.sweep(t, d.newExpiry(t, nil))
	same(t, "expired", []string{`c up to 1 for ["` + ann + `"]`, `c up to 1 for ["` + ann + `"]`, `never delivered to up to 1 for ["` + ann + `"]`}, d.expired(t))
	same(t, "still unread", []string{}, d.unread(t))
	// Its first message is not taken for read.
	d.append(t, foldtest.Deliver("never delivered to", 1, ann))
	d.fold(t)
	same(t, "unread", []string{"never delivered to: 1"}, d.unread(t))
}

// A sweep has one batch in the log at a time, of no more than it may, however
// many it finds at once.
func TestSweepsArePaced(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.appendAgo(t, 2*week, chats(10, ann)...)
	d.fold(t)
	var batches []int
	folding := d.folding(t)
	x := d.newExpiry(t, func(cfg *expiry.Config) {
		cfg.BatchSize = 4
		cfg.Log = appender(func(evs ...events.Event) (events.Receipt, error) {
			batches = append(batches, len(evs))
			if n := len(d.unread(t)); n != []int{10, 6, 4}[len(batches)-1] {
				t.Errorf("%d are unread before batch %d", n, len(batches))
			}
			return folding(evs...)
		})
	})
	x.PageSize = 6
	d.sweep(t, x)
	if !slices.Equal(batches, []int{4, 2, 4}) {
		t.Errorf("batches of %v, want 4, 2 and 4", batches)
	}
}

// Where nobody folds, a sweep does not pile up events; it goes on to the next
// partition.
func TestSweepLeavesAPartitionThatIsNotFolded(t *testing.T) {
	d := newDatabase(t)
	d.appendAgo(t, 2*week, chats(10, foldtest.User(0, 0))...)
	d.appendAgo(t, 2*week, foldtest.Deliver("c", 1, foldtest.User(1, 0)))
	d.fold(t)
	log := newDiary()
	x := d.newExpiry(t, func(cfg *expiry.Config) { cfg.BatchSize, cfg.Log, cfg.Logger = 4, d.log, slog.New(log) })
	x.FoldTimeout = 0
	d.sweep(t, x)
	if n := len(d.expired(t)); n != 5 {
		t.Errorf("%d were expired, want a batch of 4 and 1", n)
	}
	log.await(t, "the projector does not fold expired conversations; the next sweep continues with the partition")
	same(t, "progress", []string{"0 chat 0", "1 chat 0", "2 chat " + hourAgo(week), "3 chat " + hourAgo(week)}, d.progress(t))
	d.sweep(t, d.newExpiry(t, nil))
	same(t, "still unread", []string{}, d.unread(t))
}

// A sweep that is cut off anywhere, and one that sweeps again before anything
// was folded, change nothing twice.
func TestSweepAgainAfterACrash(t *testing.T) {
	for name, second := range map[string]int{"same batches": 4, "other batches": 3} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			var users []string
			for i := range 10 {
				users = append(users, foldtest.User(0, i))
			}
			d.appendAgo(t, 2*week, foldtest.Deliver("c", 1, users...))
			d.fold(t)
			ctx, cancel := context.WithCancel(t.Context())
			x := d.newExpiry(t, func(cfg *expiry.Config) { cfg.BatchSize, cfg.Log = 4, cancelling{d.log, cancel} })
			if err := x.Sweep(ctx, d.connect(t)); !errors.Is(err, context.Canceled) {
				t.Fatalf("the sweep ended with %v", err)
			}
			d.sweep(t, d.newExpiry(t, func(cfg *expiry.Config) { cfg.BatchSize = second }))
			same(t, "still unread", []string{}, d.unread(t))
			for _, user := range users {
				if b := d.badge(t, user); b.Total != 0 || b.Version != 2 {
					t.Errorf("%s has %d at version %d, want 0 at 2", user, b.Total, b.Version)
				}
			}
			if n := count(d.projector.metrics.duplicates); (n == 1) != (second == 4) {
				t.Errorf("%d events were known by name", n)
			}
		})
	}
}

// cancelling cancels a context after an append.
type cancelling struct {
	expiry.Appender
	cancel context.CancelFunc
}

func (c cancelling) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	defer c.cancel()
	return c.Appender.Append(ctx, evs...)
}
