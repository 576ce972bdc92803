package logview

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// next returns what is new in a view: a line for each event.
func next(t *testing.T, v *View) (lines []string) {
	t.Helper()
	if err := v.Next(t.Context(), func(partition int, r *events.Record) error {
		line := fmt.Sprintf("%d: %s", partition, r.Payload)
		if e, err := events.Decode(r.Payload); err == nil {
			line = fmt.Sprintf("%d: %s %d of %s, index %d", partition, e.Data.ConversationID, e.Data.Seq, e.Data.UserIDs, r.Index)
		}
		lines = append(lines, line)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return lines
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// A view has each folded event, of rows with several too, that its filter lets in.
func TestFilters(t *testing.T) {
	d := projectortest.New(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(1, 0)
	d.AppendAgo(t, time.Hour, foldtest.Deliver("c", 1, ann), foldtest.Deliver("d", 1, ann, bob))
	d.Append(t, foldtest.Deliver("c", 2, ann))
	d.InsertPayload(t, `{}`)
	d.Fold(t)
	d.Append(t, foldtest.Deliver("c", 3, ann)) // is not folded
	line := func(partition int, conversation string, seq int, user string, index int) string {
		return fmt.Sprintf("%d: %s %d of [%s], index %d", partition, conversation, seq, user, index)
	}
	old, both := line(0, "c", 1, ann, 0), line(0, "d", 1, ann, 1)
	others, recent := line(1, "d", 1, bob, 0), line(0, "c", 2, ann, 0)
	now := time.Now().Add(-time.Minute)
	for name, tc := range map[string]struct {
		filter Filter
		want   []string
	}{
		"all":          {Filter{}, []string{old, both, recent, "0: {}", others}},
		"a partition":  {Filter{Partitions: []int{1}}, []string{others}},
		"user":         {Filter{User: bob}, []string{others}},
		"conversation": {Filter{Conversation: "c"}, []string{old, recent}},
		"both":         {Filter{User: ann, Conversation: "d"}, []string{both}},
		"since":        {Filter{Since: now}, []string{recent, "0: {}"}},
		"until":        {Filter{Until: now}, []string{old, both, others}},
	} {
		t.Run(name, func(t *testing.T) {
			wantLines(t, "events", next(t, New(d.Pool, d.Log, tc.filter)), tc.want...)
		})
	}
}

// The next call has what was folded since, late events once too.
func TestNext(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	late, err := d.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(t.Context()) }()
	if _, err := d.Log.Publish(t.Context(), late, foldtest.Deliver("late", 1, ann), foldtest.Deliver("late", 2, ann)); err != nil {
		t.Fatal(err)
	}
	d.Append(t, foldtest.Deliver("c", 1, ann))
	d.Fold(t)
	v := New(d.Pool, d.Log, Filter{User: ann})
	wantLines(t, "first", next(t, v), fmt.Sprintf("0: c 1 of [%s], index 0", ann))
	wantLines(t, "then", next(t, v))
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "before the late events are folded", next(t, v))
	d.Append(t, foldtest.Deliver("c", 2, ann))
	d.Fold(t)
	wantLines(t, "late", next(t, v), fmt.Sprintf("0: late 1 of [%s], index 0", ann), fmt.Sprintf("0: late 2 of [%s], index 1", ann),
		fmt.Sprintf("0: c 2 of [%s], index 0", ann))
	wantLines(t, "at the end", next(t, v))
}
