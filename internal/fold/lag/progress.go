package lag

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/pg/pgsession"
)

const (
	// progressInterval is how often progress is checked; progressTimeout limits each check.
	progressInterval = 5 * time.Second
	progressTimeout  = 3 * time.Second
	// unownedFor is how long a partition may be without an owner before Check reports it.
	// Another process normally takes over a partition within seconds.
	unownedFor = 10 * time.Second
	// stuckFor limits how long a partition with unfolded events may stay at the same position.
	// After this time Check reports the partition.
	stuckFor = 30 * time.Second
)

// Progress is a health check of the partitions of a database. It fails if a partition has no owner,
// or if a partition has unfolded events and its position does not change. It is safe for concurrent
// use.
type Progress struct {
	q    events.Querier
	held func() []int

	mu      sync.Mutex
	unowned map[int]time.Time
	stuck   map[int]stay
}

// stay is the position of a partition with unfolded events, and the time since which the
// position has not changed.
type stay struct {
	position events.Position
	since    time.Time
}

// NewProgress returns a Progress. held returns the partitions to check. Call Run, since Check
// reports only what Run has found.
func NewProgress(q events.Querier, held func() []int) *Progress {
	return &Progress{q: q, held: held, unowned: map[int]time.Time{}, stuck: map[int]stay{}}
}

// Run checks the partitions every progressInterval until ctx is done. If the database cannot
// be read, the result of the last check remains: other health checks report the database.
func (p *Progress) Run(ctx context.Context) error {
	return wait.Repeat(ctx, progressInterval, p.look)
}

func (p *Progress) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	held := p.held()
	rows, _ := p.q.Query(ctx, statements.Get("owned partitions"), pgsession.LockClass)
	owned, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return
	}
	waiting, err := WaitingIn(ctx, p.q, held)
	p.note(time.Now(), held, owned, waiting, err == nil)
}

// note stores the result of a check at the time `now`: the partitions that this database holds,
// the partitions that have an owner, and the unfolded events of the held partitions. measured
// is false if the unfolded events could not be read.
func (p *Progress) note(now time.Time, held, owned []int, waiting map[int]Waiting, measured bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	unowned, stuck := map[int]time.Time{}, map[int]stay{}
	for _, id := range held {
		if !slices.Contains(owned, id) {
			unowned[id] = now
			if since, ok := p.unowned[id]; ok {
				unowned[id] = since
			}
		}
		if w := waiting[id]; w.Age > 0 {
			stuck[id] = stay{w.Folded, now}
			if before, ok := p.stuck[id]; ok && before.position == w.Folded {
				stuck[id] = before
			}
		}
	}
	p.unowned = unowned
	if measured {
		p.stuck = stuck
	}
}

// Check returns an error that names the partitions that have no owner, and the partitions whose
// position does not change although they have unfolded events; nil if there are none.
func (p *Progress) Check(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var unowned, stuck []int
	for id, since := range p.unowned {
		if time.Since(since) > unownedFor {
			unowned = append(unowned, id)
		}
	}
	for id, s := range p.stuck {
		if time.Since(s.since) > stuckFor && !slices.Contains(unowned, id) {
			stuck = append(stuck, id)
		}
	}
	var texts []string
	if len(unowned) > 0 {
		texts = append(texts, fmt.Sprintf("no projector folds partitions %s", list(unowned)))
	}
	if len(stuck) > 0 {
		texts = append(texts, fmt.Sprintf("events wait and are not folded in partitions %s", list(stuck)))
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; ") + ": events are stored, and badges do not change")
}

// list returns the partitions in ascending order, as text.
func list(partitions []int) string {
	slices.Sort(partitions)
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(partitions), " ", ", "), "[]")
}
