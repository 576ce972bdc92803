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
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/wait"
)

const (
	// progressInterval is how often progress is looked for, and progressTimeout bounds a look.
	progressInterval = 5 * time.Second
	progressTimeout  = 3 * time.Second
	// unownedFor is for how long a partition may be without a projector: a takeover takes
	// seconds.
	unownedFor = 10 * time.Second
	// stuckFor is for how long events may wait while the position of a partition stays.
	stuckFor = 30 * time.Second
)

// Progress tells whether the partitions of a database are folded, by whichever process. It is
// safe for concurrent use.
type Progress struct {
	q    events.Querier
	held func() []int

	mu      sync.Mutex
	unowned map[int]time.Time
	stuck   map[int]stay
}

// stay is since when events wait behind a position.
type stay struct {
	at    events.Position
	since time.Time
}

// NewProgress looks at the partitions that held returns. Run looks.
func NewProgress(q events.Querier, held func() []int) *Progress {
	return &Progress{q: q, held: held, unowned: map[int]time.Time{}, stuck: map[int]stay{}}
}

// Run looks until ctx is done. While it cannot, what it found last stays: other checks say
// why.
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

// note takes over what a look has found. measured is whether waiting is known.
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
			if before, ok := p.stuck[id]; ok && before.at == w.Folded {
				stuck[id] = before
			}
		}
	}
	p.unowned = unowned
	if measured {
		p.stuck = stuck
	}
}

// Check returns which partitions are not folded, nil if all are.
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

// list names partitions in their order.
func list(partitions []int) string {
	slices.Sort(partitions)
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(partitions), " ", ", "), "[]")
}
