package expiry

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
	"github.com/badged/badged/internal/devtest/projectortest"
)

// A sweep expires exactly the conversations that are unread for longer than the limit of their
// category, and none of a category without a limit.
func TestExpiresExactlyWhatIsStale(t *testing.T) {
	d := projectortest.New(t)
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
		d.AppendAgo(t, name, e)
	}
	late := foldtest.Deliver("delivered again", 5, ann)
	late.ID, late.Time = "late", foldtest.Noon.Add(-300*day) // when it was sent is of no account
	mention := foldtest.Deliver("mentions only", 2, ann)
	mention.Data.MentionedUserIDs = []string{ann}
	d.AppendAgo(t, 9*day,
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
	d.AppendAgo(t, time.Hour, late, foldtest.Event("10", events.ConversationMarkedUnread, "marked just now", nil, ann))
	d.Fold(t)

	x := newExpiry(t, d, func(cfg *Config) { cfg.After["likes"] = day })
	sweep(t, d, x)
	projectortest.Same(t, "still unread", []string{
		"delivered again: 3", "marked just now: marked", "not for another half hour: 1", "system: 1", "young chat: 1", "young likes: 1",
	}, unread(t, d))
	found := expired(t, d)
	slices.Sort(found)
	projectortest.Same(t, "expired", []string{
		`just stale up to 1 for ["` + ann + `"]`,
		`marked long ago up to 1 for ["` + ann + `"]`,
		`mentions only up to 2 for ["` + ann + `"]`,
		`muted up to 1 for ["` + ann + `"]`,
		`now a chat up to 2 for ["` + ann + `"]`,
		`old chat up to 1 for ["` + ann + `"]`,
		`old likes up to 1 for ["` + ann + `"]`,
		`read in part up to 2 for ["` + ann + `"]`,
	}, found)
	if n := projectortest.Count(x.cfg.Metrics.conversations); n != 8 {
		t.Errorf("the metric says %d, want 8", n)
	}
	if b := d.Badge(t, ann); b.Total != 8 || b.Mentions != 0 {
		t.Errorf("total %d and %d mentions, want 8 and 0", b.Total, b.Mentions)
	}

	before := d.Dump(t)
	sweep(t, d, x)
	if got := expired(t, d); len(got) != 8 || d.Dump(t) != before {
		t.Errorf("there was nothing left, and the second sweep expired it:\n%s", strings.Join(got, "\n"))
	}
}

// The star covers all categories without a key of their own.
func TestOtherCategoriesExpire(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(1, 0)
	d.AppendAgo(t, 2*week, foldtest.Deliver("chat", 1, ann), foldtest.InCategory("likes", foldtest.Deliver("likes", 1, ann)), foldtest.InCategory("*", foldtest.Deliver("star", 1, ann)), foldtest.InCategory("system", foldtest.Deliver("system", 1, ann)))
	d.AppendAgo(t, week/2, foldtest.InCategory("likes", foldtest.Deliver("young likes", 1, ann)), foldtest.InCategory("zebra", foldtest.Deliver("zebra", 1, ann)))
	d.Fold(t)
	sweep(t, d, newExpiry(t, d, func(cfg *Config) {
		cfg.After = map[string]time.Duration{"*": week, "chat": 3 * week, "zebra": time.Hour, "unused": time.Hour}
	}))
	projectortest.Same(t, "still unread", []string{"chat: 1", "young likes: 1"}, unread(t, d))
}

// One event expires a conversation for all users of a partition with the same last message.
func TestExpiryGroupsUsers(t *testing.T) {
	d := projectortest.New(t)
	a, b, c, other := foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(0, 2), foldtest.User(3, 0)
	d.AppendAgo(t, 2*week, foldtest.Deliver("team", 1, a, b, c, other), foldtest.Deliver("team", 2, a, b, other))
	d.Fold(t)
	sweep(t, d, newExpiry(t, d, nil))
	users := []string{a, b}
	slices.Sort(users)
	got := expired(t, d)
	slices.Sort(got)
	projectortest.Same(t, "expired", []string{
		`team up to 1 for ["` + c + `"]`,
		`team up to 2 for ["` + strings.Join(users, `","`) + `"]`,
		`team up to 2 for ["` + other + `"]`,
	}, got)
	projectortest.Same(t, "still unread", []string{}, unread(t, d))
}

// A message delivered after the sweep's query stays unread, before or after the sweep's event in
// the log.
func TestWhatArrivesMeanwhileStaysUnread(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("before the event: ", first), func(t *testing.T) {
			d := projectortest.New(t)
			ann := foldtest.User(2, 0)
			d.AppendAgo(t, 2*week, foldtest.Deliver("c", 1, ann), foldtest.Deliver("c", 2, ann))
			d.Fold(t)
			sweep(t, d, newExpiry(t, d, func(cfg *Config) {
				cfg.Log = appender(func(evs ...events.Event) (events.Receipt, error) {
					if first {
						d.Append(t, foldtest.Deliver("c", 3, ann))
					}
					receipt := d.Append(t, evs...)
					if !first {
						d.Append(t, foldtest.Deliver("c", 3, ann))
					}
					d.Fold(t)
					return receipt, nil
				})
			}))
			projectortest.Same(t, "expired", []string{`c up to 2 for ["` + ann + `"]`}, expired(t, d))
			projectortest.Same(t, "still unread", []string{"c: 1"}, unread(t, d))
		})
	}
}

// A mark starts the time of a conversation again, so it can expire again: with another event,
// which reads up to the same message.
func TestMarksExpireToo(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(2, 0)
	d.AppendAgo(t, week+2*time.Hour, foldtest.Deliver("c", 1, ann))
	d.Fold(t)
	sweep(t, d, newExpiry(t, d, nil))
	d.AppendAgo(t, week+time.Hour,
		foldtest.Event("1", events.ConversationMarkedUnread, "c", nil, ann),
		foldtest.Event("2", events.ConversationMarkedUnread, "never delivered to", nil, ann))
	d.Fold(t)
	sweep(t, d, newExpiry(t, d, nil))
	projectortest.Same(t, "expired", []string{`c up to 1 for ["` + ann + `"]`, `c up to 1 for ["` + ann + `"]`, `never delivered to up to 1 for ["` + ann + `"]`}, expired(t, d))
	projectortest.Same(t, "still unread", []string{}, unread(t, d))
	// Its first message is not taken for read.
	d.Append(t, foldtest.Deliver("never delivered to", 1, ann))
	d.Fold(t)
	projectortest.Same(t, "unread", []string{"never delivered to: 1"}, unread(t, d))
}

// A sweep has one unfolded batch in the log at a time, of at most BatchSize, however many
// conversations it finds.
func TestSweepsArePaced(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.AppendAgo(t, 2*week, chats(10, ann)...)
	d.Fold(t)
	var batches []int
	folding := folding(t, d)
	x := newExpiry(t, d, func(cfg *Config) {
		cfg.BatchSize = 4
		cfg.Log = appender(func(evs ...events.Event) (events.Receipt, error) {
			batches = append(batches, len(evs))
			if n := len(unread(t, d)); n != []int{10, 6, 4}[len(batches)-1] {
				t.Errorf("%d are unread before batch %d", n, len(batches))
			}
			return folding(evs...)
		})
	})
	x.pageSize = 6
	sweep(t, d, x)
	if !slices.Equal(batches, []int{4, 2, 4}) {
		t.Errorf("batches of %v, want 4, 2 and 4", batches)
	}
}

// If a partition is not folded, a sweep writes one batch and continues with the
// next partition.
func TestSweepLeavesAPartitionThatIsNotFolded(t *testing.T) {
	d := projectortest.New(t)
	d.AppendAgo(t, 2*week, chats(10, foldtest.User(0, 0))...)
	d.AppendAgo(t, 2*week, foldtest.Deliver("c", 1, foldtest.User(1, 0)))
	d.Fold(t)
	log := projectortest.NewLogRecorder()
	x := newExpiry(t, d, func(cfg *Config) { cfg.BatchSize, cfg.Log, cfg.Logger = 4, logOf(t, d), slog.New(log) })
	x.foldTimeout = 0
	sweep(t, d, x)
	if n := len(expired(t, d)); n != 5 {
		t.Errorf("%d were expired, want a batch of 4 and 1", n)
	}
	log.Await(t, "the projector does not fold expired conversations; the next sweep continues with the partition")
	projectortest.Same(t, "progress", []string{"0 chat 0", "1 chat 0", "2 chat " + hourAgo(week), "3 chat " + hourAgo(week)}, progress(t, d))
	sweep(t, d, newExpiry(t, d, nil))
	projectortest.Same(t, "still unread", []string{}, unread(t, d))
}

// An interrupted sweep, and a second sweep before the first is folded, change nothing twice.
func TestSweepAgainAfterACrash(t *testing.T) {
	for name, second := range map[string]int{"same batches": 4, "other batches": 3} {
		t.Run(name, func(t *testing.T) {
			d := projectortest.New(t)
			var users []string
			for i := range 10 {
				users = append(users, foldtest.User(0, i))
			}
			d.AppendAgo(t, 2*week, foldtest.Deliver("c", 1, users...))
			d.Fold(t)
			ctx, cancel := context.WithCancel(t.Context())
			x := newExpiry(t, d, func(cfg *Config) { cfg.BatchSize, cfg.Log = 4, cancelling{logOf(t, d), cancel} })
			if err := x.once(ctx, d.Connect(t)); !errors.Is(err, context.Canceled) {
				t.Fatalf("the sweep ended with %v", err)
			}
			sweep(t, d, newExpiry(t, d, func(cfg *Config) { cfg.BatchSize = second }))
			projectortest.Same(t, "still unread", []string{}, unread(t, d))
			for _, user := range users {
				if b := d.Badge(t, user); b.Total != 0 || b.Version != 2 {
					t.Errorf("%s has %d at version %d, want 0 at 2", user, b.Total, b.Version)
				}
			}
			repeated, names := 0, map[string]bool{}
			for _, r := range d.Records(t, 0) {
				e, err := events.Decode(r.Payload)
				if err != nil {
					t.Fatal(err)
				}
				if e.Type == events.ConversationExpired && names[e.ID] {
					repeated++
				}
				names[e.ID] = true
			}
			if (repeated == 1) != (second == 4) {
				t.Errorf("%d events were written twice under one name", repeated)
			}
		})
	}
}

// cancelling cancels a context after an append.
type cancelling struct {
	Appender
	cancel context.CancelFunc
}

func (c cancelling) Append(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
	defer c.cancel()
	return c.Appender.Append(ctx, evs...)
}
