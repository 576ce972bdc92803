package outbound

import (
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/events"
)

// reader reads a partition of the log for a webhook, page by page, from the stored position
// on. What has failed stays in its page, and so holds the position. It is gone with the
// process: the next reader begins at the position.
type reader struct {
	webhook   string
	partition int

	// db is held while the position is read, or what depends on it, and while it is moved.
	db sync.Mutex
	// stored is the position in the database, once it was read.
	stored events.Position
	// lookedAt is when the queue was read last, and full whether it may have more.
	lookedAt time.Time
	full     bool

	mu    sync.Mutex
	pages []*page
	// behind is whether there may be more to read.
	behind bool
	// refused is whether subjects may be refused.
	refused bool
	// held are rows of the queue that are not taken before a time.
	held map[row]time.Time
	// roundAt is when a large room may be told again.
	roundAt map[string]time.Time
}

// page is what some events have changed, or some of all users, of a reader.
type page struct {
	reader *reader
	// to is the position behind the events, and told how many the webhook was told up to
	// there. revision and after are how far the scan over all users is then.
	to       events.Position
	told     int64
	revision int64
	after    *string
	// due are subjects that no sender has, and open is how many were not told yet.
	due  []*subject
	open int
	// rooms are those whose members are not among the subjects yet, and users those who are.
	rooms []change
	users set
}

// change is a user or a room that an event changes, and when that was appended.
type change struct {
	name string
	at   time.Time
}

// subject is what a webhook is told of a page.
type subject struct {
	*page
	kind, name string
	at         time.Time
	// attempts is how many calls failed, and again when it may be tried again. refused is
	// set if the last was about the subject alone.
	attempts int
	again    time.Time
	refused  bool
}

const (
	// maxPages is how many pages wait until all of them is told, and maxOpen how many
	// subjects: then no further page is read.
	maxPages = 8
	maxOpen  = 20_000
)

func (s *subject) row(partition int) row { return row{partition, s.kind, s.name} }

// take takes up to limit subjects whose time has come and that are not taken.
func (r *reader) take(limit int, taken map[row]struct{}, now time.Time) (all []*subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pages {
		p.due = slices.DeleteFunc(p.due, func(s *subject) bool {
			if _, isTaken := taken[s.row(r.partition)]; isTaken || len(all) == limit || s.again.After(now) {
				return false
			}
			all = append(all, s)
			return true
		})
	}
	return all
}

// isFull reports whether the pages have to be told before another is read.
func (r *reader) isFull() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	open := 0
	for _, p := range r.pages {
		open += p.open
	}
	return len(r.pages) >= maxPages || open >= maxOpen
}

// last returns the last page, nil if there is none.
func (r *reader) last() *page {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pages) == 0 {
		return nil
	}
	return r.pages[len(r.pages)-1]
}

// mayRead reports whether there may be more to read.
func (r *reader) mayRead() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.behind
}

// setBehind sets whether there may be more to read.
func (r *reader) setBehind(behind bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind = behind
}

// add adds subjects to a page, which it appends if it is new.
func (r *reader) add(p *page, some []*subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.due, p.open = append(p.due, some...), p.open+len(some)
	if len(r.pages) == 0 || r.pages[len(r.pages)-1] != p {
		r.pages = append(r.pages, p)
	}
}

// giveBack gives a subject back that is to be told later.
func (r *reader) giveBack(s *subject, again time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.again = again
	s.due = append(s.due, s)
	r.refused = r.refused || s.refused
}

// done notes that a subject was told, or is in the queue, and reports whether the position
// can be moved.
func (r *reader) done(s *subject) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.open--
	return len(r.pages) > 0 && r.pages[0].isTold()
}

func (p *page) isTold() bool { return p.open == 0 && len(p.rooms) == 0 }

// toldPages returns how many pages were told before the first that was not, and the last of
// them.
func (r *reader) toldPages() (n int, last *page) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n < len(r.pages) && r.pages[n].isTold() {
		last = r.pages[n]
		n++
	}
	return n, last
}

// drop forgets the first pages, and returns the position behind them.
func (r *reader) drop(n int) events.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	to := r.pages[n-1].to
	r.pages = slices.Delete(r.pages, 0, n)
	return to
}

// forget lets the reader begin at the position in the database again.
func (r *reader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pages, r.stored, r.behind = nil, events.Position{}, true
}

// takeRefused takes the subjects out of the pages that were refused.
func (r *reader) takeRefused() (all []*subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.refused {
		return nil
	}
	r.refused = false
	for _, p := range r.pages {
		p.due = slices.DeleteFunc(p.due, func(s *subject) bool {
			if s.refused {
				all = append(all, s)
			}
			return s.refused
		})
	}
	return all
}

// renew lets everything that waits be taken.
func (r *reader) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.held)
	r.behind = true
	for _, p := range r.pages {
		for _, s := range p.due {
			s.attempts, s.again, s.refused = 0, time.Time{}, false
		}
	}
}

// hold lets a row of the queue not be taken for a time.
func (r *reader) hold(what row, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[what] = until
}

// heldRows returns the rows of the queue that are not to be taken.
func (r *reader) heldRows(now time.Time) (all []row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, until := range r.held {
		if until.After(now) {
			all = append(all, what)
		} else {
			delete(r.held, what)
		}
	}
	return all
}

// round begins a round of a large room, or returns how long the next has to wait, and
// whether the room is queued for then already.
func (r *reader) round(room string, interval time.Duration, now time.Time) (wait time.Duration, queued bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, at := range r.roundAt {
		if !at.After(now) {
			delete(r.roundAt, other)
		}
	}
	at, waits := r.roundAt[room]
	if !waits {
		r.roundAt[room] = now.Add(interval)
		return 0, false
	}
	if wait = at.Sub(now); wait <= interval {
		r.roundAt[room] = at.Add(interval) // after the queued round
		return wait, false
	}
	return wait, true
}

// readers are the readers of all webhooks in the partitions that this process owns.
type readers struct {
	mu  sync.Mutex
	all map[string]map[int]*reader // by webhook and partition
}

// of returns a reader, which is new if the webhook has none in the partition.
func (rs *readers) of(webhook string, partition int) *reader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.all[webhook] == nil {
		rs.all[webhook] = map[int]*reader{}
	}
	r := rs.all[webhook][partition]
	if r == nil {
		r = &reader{webhook: webhook, partition: partition, behind: true, held: map[row]time.Time{}, roundAt: map[string]time.Time{}}
		rs.all[webhook][partition] = r
	}
	return r
}

// ofWebhook returns the readers of a webhook.
func (rs *readers) ofWebhook(webhook string) (all []*reader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all[webhook] {
		all = append(all, r)
	}
	return all
}

// readOn lets the readers of a partition read on.
func (rs *readers) readOn(partition int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, byPartition := range rs.all {
		if r := byPartition[partition]; r != nil {
			r.setBehind(true)
		}
	}
}

// own forgets the readers of partitions that another process has.
func (rs *readers) own(owned []int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, byPartition := range rs.all {
		for p := range byPartition {
			if !slices.Contains(owned, p) {
				delete(byPartition, p)
			}
		}
	}
}
