package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

func TestLoad(t *testing.T) {
	content := chatter(3000)
	unread := expectedUnread(t, strings.NewReader(content))
	users, withUnread, total := sums(unread)
	for _, suffix := range []string{"", ".gz", ".zst"} {
		t.Run("file"+suffix, func(t *testing.T) {
			stored := content
			if suffix != "" {
				stored = compressed(t, suffix, content)
			}
			path := writeFile(t, "traffic"+suffix, stored)
			target := newModel()
			var first Summary
			for run := range 2 { // the second run changes nothing
				got, err := Load(t.Context(), Config{File: path, Target: target, BatchSize: 100})
				if err != nil {
					t.Fatal(err)
				}
				want := Summary{
					File: path, Events: got.Messages + got.Reads, Messages: 3000, Reads: got.Reads,
					Users: users, UsersWithUnread: withUnread, TotalUnread: total,
				}
				if run == 1 {
					want = withoutTimes(first)
				}
				if diff := cmp.Diff(want, withoutTimes(got)); diff != "" {
					t.Errorf("summary of run %d (-want +got):\n%s", run, diff)
				}
				first = got
				checkBadges(t, target, unread)
			}
			if n := int(first.Events); target.repeated != n || len(target.appended) != n {
				t.Errorf("of %d events loaded twice, %d were new and %d repeated", n, len(target.appended), target.repeated)
			}
		})
	}
}

func TestLoadOfEventsFromStandardInput(t *testing.T) {
	got, err := Load(t.Context(), Config{
		File: "-", Stdin: strings.NewReader(delivered + "\n" + marked + "\n"), Target: newModel(),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{File: "standard input", Events: 2, Messages: 1, Users: 2, UsersWithUnread: 2, TotalUnread: 2, Mentions: 1}
	if diff := cmp.Diff(want, withoutTimes(got)); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestLoadTakesTimesFromItsClock(t *testing.T) {
	clock := newTestClock()
	target := newModel()
	target.foldOnAppend = false
	slow := &hooked{Target: target, before: func() { clock.pass(2 * time.Second) }}
	clock.onSleep = func() {
		target.mu.Lock()
		defer target.mu.Unlock()
		target.folded = target.last
		clock.pass(2*time.Second - foldPoll)
	}
	got, err := Load(t.Context(), Config{
		File: "-", Stdin: strings.NewReader(chatter(8)), Target: slow, BatchSize: 3, clock: clock, InFlight: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	batches := (got.Events + 2) / 3
	want := Summary{
		PublishSeconds: 2 * float64(batches), FoldSeconds: 2*float64(batches) + 2,
		PublishedPerSecond: float64(got.Events) / (2 * float64(batches)),
		FoldedPerSecond:    float64(got.Events) / (2*float64(batches) + 2),
	}
	if got.PublishSeconds != want.PublishSeconds || got.FoldSeconds != want.FoldSeconds ||
		got.PublishedPerSecond != want.PublishedPerSecond || got.FoldedPerSecond != want.FoldedPerSecond {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// hooked calls before ahead of each Append.
type hooked struct {
	Target
	before func()
}

func (h *hooked) Append(ctx context.Context, evs []events.Event) (int64, error) {
	h.before()
	return h.Target.Append(ctx, evs)
}

func TestLoadStopsAtABadLine(t *testing.T) {
	path := writeFile(t, "t", "a b 1\nb a 2\nc d 3\nnonsense\na b 4\n")
	target := newModel()
	got, err := Load(t.Context(), Config{File: path, Target: target, BatchSize: 2})
	var bad *LineError
	if !errors.As(err, &bad) || bad.Line != 4 || bad.File != path {
		t.Errorf("error is %v", err)
	}
	if got.Events != 4 || len(target.appended) != 4 || got.FoldSeconds != 0 {
		t.Errorf("published %d events, %d arrived; summary %+v", got.Events, len(target.appended), got)
	}
}

func TestLoadRefusesBadConfigs(t *testing.T) {
	for _, cfg := range []Config{
		{Target: newModel()},
		{File: "f"},
		{File: "f", Target: newModel(), BatchSize: -1},
		{File: "f", Target: newModel(), BatchSize: maxBatchSize + 1},
		{File: "f", Target: newModel(), InFlight: maxInFlight + 1},
		{File: "f", Target: newModel(), GiveUpAfter: -time.Second},
	} {
		if _, err := Load(t.Context(), cfg); err == nil || errors.Is(err, io.EOF) || !strings.HasPrefix(err.Error(), "load: ") {
			t.Errorf("%+v: error is %v", cfg, err)
		}
	}
}

// gate is a target whose Append blocks until released, and that shows what
// waits.
type gate struct {
	Target
	mu      sync.Mutex
	waiting []string
	open    chan struct{}
}

func (g *gate) Append(ctx context.Context, evs []events.Event) (int64, error) {
	g.mu.Lock()
	g.waiting = append(g.waiting, evs[0].ID)
	g.mu.Unlock()
	select {
	case <-g.open:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return g.Target.Append(ctx, evs)
}

// arrived returns how many batches have arrived since the last call.
func (g *gate) arrived() int {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.waiting)
	g.waiting = nil
	return n
}

func eventLine(id int, eventType events.Type) string {
	data := `{"conversation_id":"c","user_ids":["u"]}`
	if eventType == events.MessageDelivered {
		data = fmt.Sprintf(`{"conversation_id":"c","user_ids":["u"],"seq":%d}`, id)
	}
	return fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"s","type":"%s","data":%s}`+"\n", id, eventType, data)
}

func TestLoadKeepsTheOrderThatMatters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var file strings.Builder
		for id, eventType := range []events.Type{
			events.MessageDelivered, events.MessageDelivered,
			events.ConversationMarkedUnread,
			events.ConversationLeft,
			events.MessageDelivered, events.MessageDelivered, events.MessageDelivered,
		} {
			file.WriteString(eventLine(id+1, eventType))
		}
		target := &gate{Target: newModel(), open: make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			_, err := Load(t.Context(), Config{
				File: "-", Stdin: strings.NewReader(file.String()), Target: target, BatchSize: 1, InFlight: 3,
			})
			done <- err
		}()
		// Two deliveries at once, each of the others alone, three at once.
		for i, want := range []int{2, 1, 1, 3} {
			if n := target.arrived(); n != want {
				t.Fatalf("step %d: %d batches at once, want %d", i, n, want)
			}
			for range want {
				target.open <- struct{}{}
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestLoadPublishesAFewBatchesAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &gate{Target: newModel(), open: make(chan struct{})}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := Load(ctx, Config{File: "-", Stdin: strings.NewReader(chatter(100)), Target: target, BatchSize: 5})
			done <- err
		}()
		if n := target.arrived(); n != defaultInFlight {
			t.Errorf("%d batches in flight, want %d", n, defaultInFlight)
		}
		target.open <- struct{}{}
		if n := target.arrived(); n != 1 {
			t.Errorf("%d batches followed the one that was done, want 1", n)
		}
		enough := errors.New("enough")
		cancel(enough)
		if err := <-done; !errors.Is(err, enough) {
			t.Errorf("error is %v", err)
		}
	})
}

func TestLoadEndsWhenABatchFailsWhileInputIsSilent(t *testing.T) {
	silent, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	refused := errors.New("refused")
	go func() { _, _ = io.WriteString(writer, "a b 1\n") }()
	_, err := Load(t.Context(), Config{
		File: "-", Stdin: silent, Target: failing{refused}, BatchSize: 1,
	})
	if !errors.Is(err, refused) || err.Error() != "publish standard input, lines 1 to 1: refused" {
		t.Errorf("error is %v", err)
	}
}

// failing is a target that always fails.
type failing struct{ err error }

func (f failing) Append(context.Context, []events.Event) (int64, error) { return 0, f.err }

func (f failing) Badges(context.Context, []string, int64) ([]pubsub.Badge, error) { return nil, f.err }

func TestLoadWaitsForASlowProjector(t *testing.T) {
	// It takes far longer than GiveUpAfter, but makes progress.
	clock := newTestClock()
	target := newModel()
	target.foldOnAppend = false
	clock.onSleep = func() {
		clock.pass(50 * time.Second)
		target.mu.Lock()
		defer target.mu.Unlock()
		target.folded++
	}
	_, err := Load(t.Context(), Config{
		File: "-", Stdin: strings.NewReader(chatter(100)), Target: target, BatchSize: 10, clock: clock,
	})
	if err != nil {
		t.Error(err)
	}
	if waited := clock.now().Sub(newTestClock().now()); waited < 5*time.Minute {
		t.Errorf("it took only %s", waited)
	}
}

func TestLoadReportsThatNothingFolds(t *testing.T) {
	clock := newTestClock()
	target := newModel()
	target.foldOnAppend = false
	got, err := Load(t.Context(), Config{
		File: "-", Stdin: strings.NewReader(chatter(10)), Target: target, clock: clock,
	})
	const want = "wait until standard input is folded: gave up after 1m0s without progress: " +
		"the events are in the log, but not in the badges: is a projector running? `badged lag` shows what blocks it"
	if !errors.Is(err, ErrNotFolded) || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
	if got.PublishedPerSecond != 0 || got.Messages != 10 || got.FoldSeconds != 0 {
		t.Errorf("summary %+v", got)
	}
}

func TestLoadAsksForManyUsersInPages(t *testing.T) {
	var file strings.Builder
	for i := range MaxBadges + 1 {
		fmt.Fprintf(&file, "sender u%d %d\n", i, i)
	}
	got, err := Load(t.Context(), Config{File: "-", Stdin: strings.NewReader(file.String()), Target: newModel()})
	if err != nil {
		t.Fatal(err)
	}
	if got.Users != MaxBadges+2 || got.UsersWithUnread != MaxBadges+1 || got.TotalUnread != MaxBadges+1 {
		t.Errorf("summary %+v", got)
	}
}

func TestBatchesAreBoundedByBytes(t *testing.T) {
	large := strings.Replace(delivered, `"c"`, `"c"`+strings.Repeat(" ", maxBatchBytes/2), 1)
	if got := batchSizes(t, strings.Repeat(large+"\n", 3)+strings.Repeat(delivered+"\n", 2)); !cmp.Equal(got, []int{1, 1, 3}) {
		t.Errorf("batches of %v", got)
	}
}

func batchSizes(t *testing.T, content string) []int {
	t.Helper()
	b := batcher{read: NewReader("traffic", strings.NewReader(content)).Next, size: 100}
	var sizes []int
	for {
		next, err := b.next()
		if errors.Is(err, io.EOF) {
			return sizes
		}
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(next.events))
	}
}

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		positions []int64
		n         int
		want      []int64
	}{
		{[]int64{3, 1, 2}, 5, []int64{1, 2, 3}},
		{[]int64{7, 7, 7}, 2, []int64{7}},
		{[]int64{6, 5, 4, 3, 2, 1}, 3, []int64{2, 4, 6}},
		{[]int64{5, 4, 3, 2, 1}, 2, []int64{2, 5}},
	} {
		if got := Spread(tt.positions, tt.n); !cmp.Equal(got, tt.want) {
			t.Errorf("Spread(%v, %d) = %v, want %v", tt.positions, tt.n, got, tt.want)
		}
	}
}
