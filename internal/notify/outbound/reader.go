package outbound

import (
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/events"
)

// reader reads a partition of the log for a webhook. It begins at the stored position and reads
// page by page. The stored position moves past a page only after all subjects of the page were
// sent or added to the webhook's queue; if a call fails, its subjects remain in the page. Pages
// are only in memory: after a restart, a new reader begins at the stored position.
type reader struct {
	webhook   string
	partition int

	// db is held while the position is moved, and while the position and the log are read.
	db sync.Mutex
	// stored is the position in the database, as last read.
	stored events.Position
	// lookedAt is the time at which the queue was last read. full is true if the queue may have
	// more due rows.
	lookedAt time.Time
	full     bool

	mu    sync.Mutex
	pages []*page
	// behind is true if the log may have events that the reader has not read.
	behind bool
	// refused is true if pages may contain subjects that the endpoint refused.
	refused bool
	// held maps a row of the queue to the time before which the row must not be given to a sender.
	held map[row]time.Time
	// roundAt has, for each large room, the earliest time of the next call about the room, after
	// all calls that are made or queued already.
	roundAt map[string]time.Time
}

// page has the subjects of one read for a webhook. Usually these are the users and rooms that the
// next events of the log have changed. But after badges have changed without events, the reader
// reads all users of the partition, page by page.
type page struct {
	reader *reader
	// to is the position after the events of the page. told is the number of the partition's events
	// before this position. revision is the last revision of the partition for which users were
	// read because badges had changed without events. `after` is the last user that was read for
	// this revision; it is nil if all users were read.
	to       events.Position
	told     int64
	revision int64
	after    *string
	// due are the subjects that no sender is processing. open is the number of subjects that were
	// neither sent nor added to the queue yet.
	due  []*subject
	open int
	// rooms are the rooms whose members were not added as subjects yet. users are the users whose
	// subjects were added.
	rooms []change
	users set
}

// change is a user or a room that an event has changed, with the time at which the event was
// appended.
type change struct {
	name       string
	appendedAt time.Time
}

// subject is a user or room about which an event must be sent to the webhook. kind is the type of
// the event, and name the id of the user or room.
type subject struct {
	*page
	kind, name string
	queuedAt   time.Time
	// attempts is the number of failed calls. dueAt is the earliest time of the next call.
	// refused is true if the last call may have failed because of this subject alone.
	attempts int
	dueAt    time.Time
	refused  bool
}

const (
	// maxPages limits the pages of a reader. maxOpen limits the subjects in these pages that were
	// neither sent nor added to the queue. At either limit, the reader reads no further page.
	maxPages = 8
	maxOpen  = 20_000
)

func (s *subject) row(partition int) row { return row{partition, s.kind, s.name} }

// take removes up to limit subjects from the due lists of the pages and returns them. It skips
// subjects whose retry is not due, and subjects in taken, which senders are processing.
func (r *reader) take(limit int, taken map[row]struct{}, now time.Time) (all []*subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pages {
		p.due = slices.DeleteFunc(p.due, func(s *subject) bool {
			if _, isTaken := taken[s.row(r.partition)]; isTaken || len(all) == limit || s.dueAt.After(now) {
				return false
			}
			all = append(all, s)
			return true
		})
	}
	return all
}

// isFull reports whether maxPages or maxOpen is reached, so that no further page may be read.
func (r *reader) isFull() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	open := 0
	for _, p := range r.pages {
		open += p.open
	}
	return len(r.pages) >= maxPages || open >= maxOpen
}

// last returns the newest page, or nil if there are no pages.
func (r *reader) last() *page {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pages) == 0 {
		return nil
	}
	return r.pages[len(r.pages)-1]
}

func (r *reader) mayRead() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.behind
}

func (r *reader) setBehind(behind bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind = behind
}

// add adds subjects to a page. If the page is new, add appends it to the pages of the reader.
func (r *reader) add(p *page, subjects []*subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.due, p.open = append(p.due, subjects...), p.open+len(subjects)
	if len(r.pages) == 0 || r.pages[len(r.pages)-1] != p {
		r.pages = append(r.pages, p)
	}
}

// giveBack makes a subject due again after a sender could not send it. dueAt is the earliest time
// of the next call about the subject.
func (r *reader) giveBack(s *subject, dueAt time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.dueAt = dueAt
	s.due = append(s.due, s)
	r.refused = r.refused || s.refused
}

// done records that a subject was sent or added to the queue. It reports whether all subjects of
// the reader's oldest page are done, so that the position can move past this page.
func (r *reader) done(s *subject) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.open--
	return len(r.pages) > 0 && r.pages[0].isTold()
}

func (p *page) isTold() bool { return p.open == 0 && len(p.rooms) == 0 }

// toldPages returns the number of complete pages before the first incomplete page; all subjects of
// a complete page are done. last is the last of these complete pages, nil if n is 0.
func (r *reader) toldPages() (n int, last *page) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n < len(r.pages) && r.pages[n].isTold() {
		last = r.pages[n]
		n++
	}
	return n, last
}

// drop removes the first n pages and returns the position after these pages.
func (r *reader) drop(n int) events.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	to := r.pages[n-1].to
	r.pages = slices.Delete(r.pages, 0, n)
	return to
}

// forget drops all pages, so that the reader begins again at the position in the database.
func (r *reader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pages, r.stored, r.behind = nil, events.Position{}, true
}

// takeRefused removes from the pages the subjects that the endpoint refused. It returns them.
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

// renew makes all subjects and rows due now that are waiting for a retry.
func (r *reader) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.held)
	r.behind = true
	for _, p := range r.pages {
		for _, s := range p.due {
			s.attempts, s.dueAt, s.refused = 0, time.Time{}, false
		}
	}
}

// hold prevents a row of the queue from being given to a sender before a time.
func (r *reader) hold(what row, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[what] = until
}

// heldRows returns the rows of the queue that must not be given to a sender now.
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

// round limits the calls about a large room to one in each interval. If a call may be made now,
// wait is 0. Otherwise the caller must queue the room for a call after the duration `wait`, unless
// queued is true: then the room is queued already.
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
		r.roundAt[room] = at.Add(interval) // the time after the queued call
		return wait, false
	}
	return wait, true
}

// readers has the readers of all webhooks in the partitions that this process owns.
type readers struct {
	mu  sync.Mutex
	all map[string]map[int]*reader // by webhook and partition
}

// reader returns the reader of a webhook in a partition. It creates the reader if it does not
// exist.
func (rs *readers) reader(webhook string, partition int) *reader {
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

func (rs *readers) ofWebhook(webhook string) (all []*reader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all[webhook] {
		all = append(all, r)
	}
	return all
}

// readOn makes the readers of a partition read the log again.
func (rs *readers) readOn(partition int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, byPartition := range rs.all {
		if r := byPartition[partition]; r != nil {
			r.setBehind(true)
		}
	}
}

// setOwned removes the readers of partitions that this process no longer owns.
func (rs *readers) setOwned(owned []int) {
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
