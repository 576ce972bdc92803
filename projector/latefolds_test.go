package projector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/partition/replay"
)

// recorded returns the records of partition 0: the message that ends each run,
// and whether it was late.
func (d *database) recorded(t *testing.T) string {
	t.Helper()
	return strings.Join(d.lines(t, `SELECT format('%s %s',
    coalesce((SELECT convert_from(e.payload, 'UTF8')::json -> 'data' ->> 'seq' FROM badged.events_p00 AS e WHERE (e.transaction_id, e."offset") = (l.transaction_id, l."offset")), 'start'),
    CASE WHEN folded_at IS NULL THEN 'in time' WHEN folded_at > clock_timestamp() - interval '10 minutes' THEN 'late' ELSE folded_at::text END)
FROM badged.late_folds AS l WHERE partition_id = 0 ORDER BY number`), ", ")
}

// A batch that folds events long after their append records that. Batches of
// the same second share a record, and events folded in time have none.
func TestLateFoldsAreRecorded(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.projector.partitions[0], foldtest.User(0, 0)
	const inTime = "-1 hour" // on a busy machine, an event of now may be a second old when it is folded
	seq := int64(0)
	fold := func(age string, limit int) {
		t.Helper()
		seq++
		d.append(t, foldtest.Deliver("c", seq, ann))
		d.exec(t, `UPDATE badged.events_p00 SET created_at = created_at - $1::text::interval WHERE convert_from(payload, 'UTF8')::json -> 'data' ->> 'seq' = $2`, age, fmt.Sprint(seq))
		if limit > 0 {
			d.awaitSettled(t, 0)
			step(t, p, limit)
		}
	}
	fold(inTime, 10)
	if got := d.recorded(t); got != "" {
		t.Errorf("what was in time is recorded: %s", got)
	}
	fold("1 hour", 10)
	fold(inTime, 10)
	if got, want := d.recorded(t), "1 in time, 2 late"; got != want {
		t.Errorf("the records are %q, want %q", got, want)
	}
	fold("1 hour", 10)
	d.exec(t, `UPDATE badged.late_folds SET since = since + interval '1 hour'`)
	fold("1 hour", 10)
	if got, want := d.recorded(t), "1 in time, 2 late, 3 in time, 5 late"; got != want {
		t.Errorf("the records are %q, want %q", got, want)
	}
	d.exec(t, `UPDATE badged.late_folds SET since = since - interval '2 hours'`)
	fold("1 hour", 10)
	if got, want := d.recorded(t), "1 in time, 2 late, 3 in time, 5 late, 6 late"; got != want {
		t.Errorf("the records are %q, want %q", got, want)
	}

	e, err := replay.NewExplainer(d.pool, d.log).Explain(t.Context(), ann, replay.Question{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range e.Conversations[0].Messages {
		late := m.FoldedAt.Sub(m.AppendedAt) > time.Minute
		if want := m.Seq == 2 || m.Seq == 4 || m.Seq == 5 || m.Seq == 6; late != want {
			t.Errorf("message %d was appended at %v and folded at %v", m.Seq, m.AppendedAt, m.FoldedAt)
		}
	}
}
