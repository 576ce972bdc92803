package projector

import (
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
)

func (d *database) epoch(t testing.TB, partition int) string {
	t.Helper()
	return d.lines(t, `SELECT epoch FROM badged.partitions WHERE partition_id = $1`, partition)[0]
}

// After a restart of Postgres a new epoch begins, once, even for a partition
// that stays owned, and before anything is folded.
func TestAnotherLifeOfPostgresBeginsAnEpoch(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.append(t, foldtest.Deliver("c", 1, ann))
	d.fold(t)
	before := d.epoch(t, 0)

	d.exec(t, `UPDATE badged.partitions SET incarnation = '00000001/1.5' WHERE partition_id = 0`)
	d.append(t, foldtest.Deliver("c", 2, ann))
	d.fold(t)
	after := d.epoch(t, 0)
	if after == before {
		t.Fatal("the epoch is that of the former life")
	}
	var told []string
	for range len(d.projector.updates) {
		for _, u := range (<-d.projector.updates).Users {
			told = append(told, u.Epoch)
		}
	}
	if want := []string{before, after}; !slices.Equal(told, want) {
		t.Errorf("updates are of the epochs %v, want %v", told, want)
	}
	d.append(t, foldtest.Deliver("c", 3, ann))
	d.fold(t)
	if last := d.epoch(t, 0); last != after {
		t.Error("each batch begins an epoch")
	}
	if n := testutil.ToFloat64(d.projector.metrics.epochs.WithLabelValues(epochRestart)); n != 1 {
		t.Errorf("%v epochs are counted, want 1", n)
	}
}

// startAgain makes it look as if Postgres had been started since a partition was
// folded: only its sessions, which are new, tell.
func (d *database) startAgain(t *testing.T, p *partition) {
	t.Helper()
	const former = "00000001/1.5"
	d.exec(t, `ALTER TABLE badged.partitions DISABLE TRIGGER revise_position`)
	d.exec(t, `UPDATE badged.partitions SET incarnation = $2 WHERE partition_id = $1`, p.id, former)
	d.exec(t, `ALTER TABLE badged.partitions ENABLE TRIGGER revise_position`)
	p.state.Incarnation = former
}

// The owner of a partition begins the epoch before it folds, in its loop as in an
// append.
func TestAnotherLifeIsSeenByItsSessions(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	part := p.partitions[0]
	appendTo(t, p, nil, foldtest.Deliver("c", 1, ann))
	for i, publish := range []func(events.Event){
		func(e events.Event) { d.append(t, e) },
		func(e events.Event) { appendTo(t, p, []int{0}, e) },
	} {
		before := d.epoch(t, 0)
		d.startAgain(t, part)
		publish(foldtest.Deliver("c", int64(i+2), ann))
		if d.epoch(t, 0) != before {
			t.Error("a publisher begins an epoch")
		}
		d.wantTotal(t, ann, int64(i+1))
		drain(t, part)
		if d.epoch(t, 0) == before {
			t.Error("the epoch is that of the former life")
		}
		d.wantTotal(t, ann, int64(i+2))
	}
}

// Of several projectors that notice a restart, one begins the epoch.
func TestOneOfManyBeginsTheEpoch(t *testing.T) {
	d := newDatabase(t)
	d.exec(t, `UPDATE badged.partitions SET incarnation = '00000001/1.5'`)
	var all []*Projector
	for range 4 {
		all = append(all, d.newProjector(t, nil))
	}
	var learning sync.WaitGroup
	for _, p := range all {
		learning.Go(func() {
			for _, part := range p.partitions {
				if _, _, err := part.step(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	learning.Wait()
	var begun float64
	for _, p := range all {
		begun += testutil.ToFloat64(p.metrics.epochs.WithLabelValues(epochRestart))
	}
	if begun != foldtest.Partitions {
		t.Errorf("%v epochs have begun for %d partitions", begun, foldtest.Partitions)
	}
}

// A position behind one that was seen committed shows that the database was
// restored, even without a restart. The epoch begins once, also if what is read next
// cannot be read at first.
func TestPositionBehindBeginsAnEpoch(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.append(t, foldtest.Deliver("c", 1, ann))
	d.fold(t)
	rows := d.position(t, 0)
	d.exec(t, `CREATE TABLE kept AS SELECT * FROM badged.events_p00_offsets`)
	d.append(t, foldtest.Deliver("c", 2, ann))
	d.fold(t)
	before := d.epoch(t, 0)

	// The position after the first event.
	d.exec(t, `UPDATE badged.events_p00_offsets AS o SET last_processed_transaction_id = k.last_processed_transaction_id, offset_acked = k.offset_acked
FROM kept AS k WHERE k.consumer_group = o.consumer_group`)
	d.exec(t, `TRUNCATE badged.dedup_blocks_p00`)
	d.exec(t, `DELETE FROM badged.conversations_p00`)
	d.exec(t, `DELETE FROM badged.users_p00`)
	if d.position(t, 0) != rows {
		t.Fatal("the position is not put back")
	}
	d.append(t, foldtest.Deliver("c", 3, ann))
	d.exec(t, `ALTER TABLE badged.dedup_runs RENAME TO away`)
	if _, err := d.projector.partitions[0].drain(t.Context()); err == nil {
		t.Fatal("the remembered events were read")
	}
	d.exec(t, `ALTER TABLE badged.away RENAME TO dedup_runs`)
	d.fold(t)
	if d.epoch(t, 0) == before {
		t.Error("the epoch is that of the states that were lost")
	}
	if n := testutil.ToFloat64(d.projector.metrics.epochs.WithLabelValues(epochRewind)); n != 1 {
		t.Errorf("%v rewinds are counted, want 1", n)
	}
}

// A projector does not write rows that it loaded before another projector
// began an epoch.
func TestBatchOfFormerEpochIsNotWritten(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.append(t, foldtest.Deliver("c", 1, ann))
	d.fold(t)
	// The state that such a projector leaves, at the same position.
	d.exec(t, `UPDATE badged.partitions SET epoch = 'another' WHERE partition_id = 0`)
	d.exec(t, `UPDATE badged.conversations_p00 SET level = 'none'`)
	d.exec(t, `UPDATE badged.users_p00 SET total = 0, categories = '{}'`)
	d.append(t, foldtest.Deliver("c", 2, ann))
	d.fold(t)
	if got, err := d.reader.Badge(t.Context(), ann); err != nil || got.Total != 0 || got.Epoch != "another" {
		t.Errorf("the badge is %+v, %v: rows of the former epoch were written", got, err)
	}
}
