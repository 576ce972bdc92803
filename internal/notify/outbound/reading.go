package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/log/tombstones"
)

// webhookGroup returns the consumer group in which the positions of a webhook are stored.
func webhookGroup(name string) string { return "badged webhook " + name }

// readerState is the state of a partition, and of a webhook's position in it, before a read of
// the log.
type readerState struct {
	folded       logread.Cursor
	foldedEvents int64
	// revision is the revision of the partition. stored is the stored position of the webhook: told
	// is the number of events before the position. For stored.revision and stored.after, see page.
	revision int64
	stored   struct {
		position       events.Position
		told, revision int64
		after          *string
	}
	wants []string
}

func (s *readerState) targets() []any {
	return append(s.folded.Targets(), &s.foldedEvents, &s.revision,
		&s.stored.position.TransactionID, &s.stored.position.Offset, &s.stored.told, &s.stored.revision, &s.stored.after, &s.wants)
}

// isLast reports whether nothing is left to read after page p.
func (s *readerState) isLast(p *page) bool {
	return p != nil && len(p.rooms) == 0 && !p.to.Before(s.folded.Position) && p.revision == s.revision && p.after == nil
}

// readOn reads the next page for a webhook. It reports whether it has read a page.
func (n *Notifier) readOn(ctx context.Context, r *reader) (read bool, err error) {
	if !r.mayRead() {
		return false, nil
	}
	r.db.Lock()
	defer r.db.Unlock()
	// Set r.behind to false before the query: if events are folded after the query, wakeReaders
	// sets it to true, so that the reader reads the log again.
	r.setBehind(false)
	var s readerState
	defer func() {
		if err != nil || read && !s.isLast(r.last()) {
			r.setBehind(true)
		}
	}()
	err = n.cfg.Pool.QueryRow(ctx, statements.Of(r.partition, "read the reader of a webhook"),
		events.ProjectorGroup, webhookGroup(r.webhook), r.webhook, r.partition).Scan(s.targets()...)
	if errors.Is(err, pgx.ErrNoRows) { // the webhook was deleted or disabled, or has no position yet
		r.forget()
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the position: %w", err)
	}
	last := r.last()
	if r.stored != s.stored.position { // this is the first read, or another notifier has moved the position
		r.forget()
		r.stored, last = s.stored.position, nil
	}
	if last == nil {
		last = &page{reader: r, to: r.stored, told: s.stored.told, revision: s.stored.revision, after: s.stored.after}
	}
	switch {
	case len(last.rooms) > 0:
		return true, n.readMembers(ctx, r, last, s.wants)
	case last.to.Before(s.folded.Position):
		return true, n.readEvents(ctx, r, last, &s)
	case last.revision != s.revision || last.after != nil:
		return true, n.readUsers(ctx, r, last, &s)
	}
	return false, nil
}

func (n *Notifier) readEvents(ctx context.Context, r *reader, last *page, s *readerState) error {
	size := logread.Size{Events: n.cfg.PageEvents, Bytes: pageBytes}
	records, err := logread.Folded(ctx, n.cfg.Pool, r.partition, last.to, s.folded, &size)
	if err != nil {
		return err
	}
	n.metrics.read.Add(float64(len(records)))
	p := &page{reader: r, to: s.folded.Position, told: last.told + int64(len(records)), revision: last.revision, after: last.after, users: set{}}
	if len(records) > 0 {
		p.to = records[len(records)-1].Position
	}
	if p.to == s.folded.Position {
		p.told = s.foldedEvents
	}
	users, rooms := n.changedBy(r.partition, records)
	large, err := n.smallRooms(ctx, r, p, rooms)
	if err != nil {
		return err
	}
	var subjects []*subject
	if slices.Contains(s.wants, BadgeChanged) {
		now := time.Now()
		for _, room := range large {
			wait, queued := r.round(room.name, n.cfg.RoomInterval, now)
			one := &subject{page: p, kind: RoomChanged, name: room.name, queuedAt: room.appendedAt}
			switch {
			case wait == 0:
				subjects = append(subjects, one)
			case !queued:
				p.open++
				n.reports.add(report{kind: callQueue, call: Call{Partition: r.partition, Webhook: r.webhook, Type: RoomChanged, Subject: room.name, QueuedAt: room.appendedAt, subject: one}, delay: wait})
			}
		}
	}
	r.add(p, append(subjects, p.about(users, s.wants)...))
	n.moveWhenTold(r)
	return nil
}

// changedBy returns the users and rooms that events of a partition may have changed, each with the
// time of the first such event. It skips an event that cannot be decoded, because such an event
// changes nothing.
func (n *Notifier) changedBy(partition int, records []events.Record) (users, rooms []change) {
	byUser, byRoom := map[string]struct{}{}, map[string]struct{}{}
	add := func(to *[]change, known map[string]struct{}, name string, appendedAt time.Time) {
		if _, ok := known[name]; !ok {
			known[name] = struct{}{}
			*to = append(*to, change{name, appendedAt})
		}
	}
	for i := range records {
		if records[i].Damage != nil {
			continue
		}
		e, err := events.Decode(tombstones.EventIn(records[i].Payload))
		if err != nil {
			continue
		}
		named := e.Data.UserIDs
		if e.Type.ToRoom() {
			named = e.Data.MentionedUserIDs
			add(&rooms, byRoom, e.Data.ConversationID, records[i].AppendedAt)
		}
		for _, user := range n.usersIn(partition, named) {
			add(&users, byUser, user, records[i].AppendedAt)
		}
	}
	return users, rooms
}

// smallRooms adds the small rooms to p.rooms, so that the webhook gets an event about each of their
// members. It returns the large rooms, which have more than MaxToldMembers members in the
// partition: the webhook gets only one event about a large room.
func (n *Notifier) smallRooms(ctx context.Context, r *reader, p *page, rooms []change) (large []change, err error) {
	if len(rooms) == 0 {
		return nil, nil
	}
	names := make([]string, len(rooms))
	for i := range rooms {
		names[i] = rooms[i].name
	}
	isLarge := map[string]bool{}
	var name string
	var many bool
	rows, _ := n.cfg.Pool.Query(ctx, statements.Of(r.partition, "read which rooms are large"), names, MaxToldMembers)
	if _, err := pgx.ForEachRow(rows, []any{&name, &many}, func() error {
		isLarge[name] = many
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read %d rooms: %w", len(rooms), err)
	}
	for _, room := range rooms {
		switch many, exists := isLarge[room.name]; {
		case many:
			large = append(large, room)
		case exists:
			p.rooms = append(p.rooms, room)
		}
	}
	return large, nil
}

// roomsPage is the maximum number of rooms whose members one query reads.
const roomsPage = 8

// readMembers adds the members of the next rooms in p.rooms to the subjects of the page, and
// removes these rooms from p.rooms.
func (n *Notifier) readMembers(ctx context.Context, r *reader, p *page, wants []string) error {
	some := p.rooms[:min(roomsPage, len(p.rooms))]
	names := make([]string, len(some))
	for i := range some {
		names[i] = some[i].name
	}
	rows, _ := n.cfg.Pool.Query(ctx, statements.Of(r.partition, "read members"), names)
	members, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c change, err error) {
		c.appendedAt = some[0].appendedAt
		return c, row.Scan(&c.name)
	})
	if err != nil {
		return fmt.Errorf("read the members of %d rooms: %w", len(some), err)
	}
	due := p.about(members, wants)
	r.mu.Lock()
	p.rooms = p.rooms[len(some):]
	r.mu.Unlock()
	r.add(p, due)
	n.moveWhenTold(r)
	return nil
}

// readUsers adds a page with the next users of the partition, up to usersPage. It is called after
// badges have changed without events, until all users were read.
func (n *Notifier) readUsers(ctx context.Context, r *reader, last *page, s *readerState) error {
	after := ""
	if last.revision == s.revision {
		after = *last.after
	}
	rows, _ := n.cfg.Pool.Query(ctx, statements.Of(r.partition, "page through users"), after, usersPage)
	now := time.Now()
	users, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c change, err error) {
		c.appendedAt = now
		return c, row.Scan(&c.name)
	})
	if err != nil {
		return fmt.Errorf("read the users: %w", err)
	}
	p := &page{reader: r, to: last.to, told: last.told, revision: s.revision, users: set{}}
	if len(users) == usersPage {
		p.after = &users[len(users)-1].name
	}
	r.add(p, p.about(users, s.wants))
	n.moveWhenTold(r)
	return nil
}

// about returns the subjects for users: for each user, one subject for each type of event that
// the webhook wants. It skips users whose subjects are in the page already.
func (p *page) about(users []change, wants []string) (all []*subject) {
	for _, u := range users {
		if _, known := p.users[u.name]; known {
			continue
		}
		p.users[u.name] = struct{}{}
		for _, kind := range aboutUsers {
			if slices.Contains(wants, kind) {
				all = append(all, &subject{page: p, kind: kind, name: u.name, queuedAt: u.appendedAt})
			}
		}
	}
	return all
}

// aboutUsers are the types of events that webhooks may get when a user has changed.
var aboutUsers = []string{BadgeChanged, UnreadReminder}

// subjectDone records that a subject was sent or added to the queue.
func (n *Notifier) subjectDone(s *subject) {
	if s.reader.done(s) {
		n.reports.move(s.reader)
	}
}

// moveWhenTold schedules a move of the reader's position if the oldest page is complete.
func (n *Notifier) moveWhenTold(r *reader) {
	if pages, _ := r.toldPages(); pages > 0 {
		n.reports.move(r)
	}
}

// settleWebhooks adds missing positions of new webhooks, and deletes the positions of deleted
// webhooks. Positions can be missing or obsolete if another database held the partition when the
// webhooks changed.
func (w *worker) settleWebhooks(ctx context.Context) error {
	if time.Since(w.webhooksChecked) < w.cfg.IdleInterval {
		return nil
	}
	var unsettled bool
	err := w.cfg.Pool.QueryRow(ctx, statements.Of(w.partition, "are webhooks unsettled"), w.partition).Scan(&unsettled)
	if err == nil && unsettled {
		_, err = w.cfg.Pool.Exec(ctx, statements.Get("settle webhooks"), w.partition)
	}
	if err != nil {
		return fmt.Errorf("settle the positions of webhooks in partition %d: %w", w.partition, err)
	}
	w.webhooksChecked = time.Now()
	return nil
}

// movePositions moves the stored positions of readers past their complete pages. If another
// notifier has moved the stored position of a reader, this reader drops its pages and begins
// again at the stored position. movePositions locks the readers in the order of partition and
// webhook.
func (n *Notifier) movePositions(ctx context.Context, readers []*reader) error {
	slices.SortFunc(readers, func(a, b *reader) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.webhook, b.webhook))
	})
	pages, moved := make([]int, len(readers)), make([]bool, len(readers))
	for _, r := range readers {
		r.db.Lock()
		defer r.db.Unlock()
	}
	err := n.transaction(ctx, func(tx pgx.Tx) error {
		var batch pgx.Batch
		for i, r := range readers {
			var last *page
			if pages[i], last = r.toldPages(); pages[i] == 0 {
				continue
			}
			batch.Queue(statements.Of(r.partition, "move the position of a webhook"), webhookGroup(r.webhook), r.stored.TransactionID, r.stored.Offset,
				last.to.TransactionID, last.to.Offset, last.told, last.revision, last.after, r.partition).QueryRow(func(row pgx.Row) error { return row.Scan(&moved[i]) })
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return fmt.Errorf("move the positions of webhooks: %w", err)
	}
	for i, r := range readers {
		switch {
		case pages[i] == 0:
			continue
		case moved[i]:
			r.stored = r.drop(pages[i])
		default:
			r.forget()
		}
		n.queues.markDue(r.partition, map[queueKey]struct{}{{name: r.webhook}: {}})
	}
	return nil
}
