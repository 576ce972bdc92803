package outbound

import (
	"slices"
	"sync"
	"time"

	"github.com/badged/badged/events"
)

// reader reads a partition of the log for a webhook, page by page, from the stored position on.
// The position moves past a page only after all subjects of the page are sent or queued; a
// subject whose call failed remains in its page. Pages are only in memory: after a restart the
// next reader begins at the stored position.
type reader struct {
	webhook   string
	partition int

	// db serializes moves of the position with reads of the position and the log.
	db sync.Mutex
	// stored is the position in the database, as last read.
	stored events.Position
	// lookedAt is when the queue was last read. full is set if the queue may have more due rows.
	lookedAt time.Time
	full     bool

	mu    sync.Mutex
	pages []*page
	// behind is set if there may be more to read in the log.
	behind bool
	// refused is set if pages may have subjects that the endpoint refused.
	refused bool
	// held has rows of the queue, each with the time before which the row must not be returned.
	held map[row]time.Time
	// roundAt has the time, for each large room, when a call about the room is allowed again.
	roundAt map[string]time.Time
}

// page has the subjects of one read for a webhook: subjects that some events have changed, or a
// page of users when all users are read because badges have changed without events.
type page struct {
	reader *reader
	// to is the position after the events of the page. told is the number of events up to this
	// position. revision is the partition's revision for which all users were last read, and
	// after is the last user of that read so far; after is nil if the read is complete.
	to       events.Position
	told     int64
	revision int64
	after    *string
	// due are the subjects that no sender has. open is the number of subjects that are neither
	// sent nor queued yet.
	due  []*subject
	open int
	// rooms are the rooms whose members were not yet added to the subjects. users are the users
	// whose subjects were added.
	rooms []change
	users set
}

// change is a user or a room that an event changes, and when the event was appended.
type change struct {
	name string
	at   time.Time
}

// subject is one event to send to the webhook. kind is its type, and name its user or room.
type subject struct {
	*page
	kind, name string
	at         time.Time
	// attempts is the number of failed calls. again is when the next call may be made. refused is
	// set if the last call may have failed because of this subject alone.
	attempts int
	again    time.Time
	refused  bool
}

const (
	// maxPages and maxOpen limit the pages and the open subjects of a reader. At either limit, it
	// reads no further page.
	maxPages = 8
	maxOpen  = 20_000
)

func (s *subject) row(partition int) row { return row{partition, s.kind, s.name} }

// take removes up to limit subjects from the pages and returns them. It skips subjects whose
// retry is not due, and subjects in taken, which senders have.
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

// add adds subjects to a page. If the page is new, it appends the page to the pages.
func (r *reader) add(p *page, some []*subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.due, p.open = append(p.due, some...), p.open+len(some)
	if len(r.pages) == 0 || r.pages[len(r.pages)-1] != p {
		r.pages = append(r.pages, p)
	}
}

// giveBack makes a subject due again after a sender could not send it. The next call about the
// subject is made at the time again, or later.
func (r *reader) giveBack(s *subject, again time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.again = again
	s.due = append(s.due, s)
	r.refused = r.refused || s.refused
}

// done records that a subject was sent or queued. It reports whether the first page is complete,
// so that the position can move.
func (r *reader) done(s *subject) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.open--
	return len(r.pages) > 0 && r.pages[0].isTold()
}

func (p *page) isTold() bool { return p.open == 0 && len(p.rooms) == 0 }

// toldPages returns the number of complete pages before the first incomplete page. last is the
// last of these complete pages, nil if there is none.
func (r *reader) toldPages() (n int, last *page) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n < len(r.pages) && r.pages[n].isTold() {
		last = r.pages[n]
		n++
	}
	return n, last
}

// drop removes the first n pages and returns the position after the pages.
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

// takeRefused removes the subjects that the endpoint refused from the pages and returns them.
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

// renew makes all subjects and rows due now that wait for a retry.
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

// hold prevents a row of the queue from being returned before a time.
func (r *reader) hold(what row, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[what] = until
}

// heldRows returns the rows of the queue that must not be returned now.
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

// round begins a round of calls about a large room and returns 0. If the last round began less
// than interval ago, no round begins: wait is the time until the next round, and queued reports
// whether the room is already queued for this next round.
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
		r.roundAt[room] = at.Add(interval) // the round after the queued one
		return wait, false
	}
	return wait, true
}

// readers are the readers of all webhooks in the partitions that this process owns.
type readers struct {
	mu  sync.Mutex
	all map[string]map[int]*reader // by webhook and partition
}

// of returns the reader of a webhook in a partition. It creates the reader if it does not exist.
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

// own removes the readers of partitions that this process no longer owns.
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
