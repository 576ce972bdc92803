package revocation

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// row is a row of badged.revocations or badged.erased_revocations.
type row struct {
	seq int64
	// userID is nil if the user was erased, and digest nil otherwise.
	userID *string
	digest []byte
	// before is the time before which tokens are revoked. It is nil if no tokens are revoked, and
	// only connections must end.
	before *time.Time
}

// page is a page of rows from the two tables, read in one snapshot.
type page struct {
	// last is the highest seq that was assigned to a row so far.
	last int64
	// database is the name of the database. This name changes with a failover, a restart of
	// Postgres, and a restore: see the statement "database" in revocation.sql.
	database string
	secret   []byte
	rows     []row
}

// full reports whether the page is full: then more rows may follow.
func (p page) full() bool { return len(p.rows) == pageRows }

// readPage runs a statement that reads a page of rows: the rows after the seq `from` ("read
// newer"), or the rows up to `from` ("read older").
func (l *List) readPage(ctx context.Context, sql string, from int64) (p page, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	rows, _ := l.pool.Query(ctx, sql, from, pageRows)
	var seq *int64
	var r row
	_, err = pgx.ForEachRow(rows, []any{&p.last, &p.database, &p.secret, &seq, &r.userID, &r.before, &r.digest}, func() error {
		if seq != nil {
			p.rows = append(p.rows, row{*seq, r.userID, slices.Clone(r.digest), r.before})
		}
		r = row{}
		return nil
	})
	if err == nil && p.database == "" {
		err = errors.New("badged.revocation_counter and badged.revocation_secret must have a row each")
	}
	if err != nil {
		return page{}, fmt.Errorf("read badged.revocations: %w", err)
	}
	p.secret = slices.Clone(p.secret)
	return p, nil
}

// take acquires the semaphore `reading`. It fails if ctx is done first.
func (l *List) take(ctx context.Context) error {
	select {
	case l.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// follow reads the rows that are new since the last call. If the name of the database has
// changed since then, for example after a failover, follow sets next, so that readOlder reads
// all rows again. If follow fails, the rows that it has already read stay in memory.
func (l *List) follow(ctx context.Context) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer func() { <-l.reading }()
	for {
		began := time.Now()
		p, err := l.readPage(ctx, statements.Get("read newer"), l.last)
		if err != nil {
			return err
		}
		if p.database != l.database || p.last < l.last { // this is another database, or a restored backup
			l.database, l.last, l.older = p.database, p.last, p.last
			l.next.Store(newTable(p.secret))
			continue
		}
		l.learn(p.rows, func(bool) bool { return true })
		if !p.full() {
			l.last = p.last
			l.readAt.Store(&began)
			return nil
		}
		l.last = p.rows[len(p.rows)-1].seq
	}
}

// readOlder reads the next page of old rows: rows that existed when the database was first
// seen. It begins with the newest of these rows. It reports whether there are more old rows.
// It releases the semaphore `reading` while it queries Postgres, so that follow can read new
// revocations meanwhile.
func (l *List) readOlder(ctx context.Context) (more bool, err error) {
	if err := l.take(ctx); err != nil {
		return false, err
	}
	next, older := l.next.Load(), l.older
	<-l.reading
	if next == nil {
		return false, nil
	}
	p, err := l.readPage(ctx, statements.Get("read older"), older)
	if err != nil {
		return false, err
	}
	if err := l.take(ctx); err != nil {
		return false, err
	}
	defer func() { <-l.reading }()
	if p.database != l.database || l.next.Load() != next || l.older != older {
		return true, nil // follow has set another next, or another call has read the page
	}
	// If known is nil, the process has just started and has no connections. Otherwise the
	// database has changed: end the connections of users with revocations that were not known
	// before.
	l.learn(p.rows, func(news bool) bool { return news && l.known.Load() != nil })
	if p.full() {
		l.older = p.rows[len(p.rows)-1].seq - 1
		return true, nil
	}
	l.known.Store(next) // store known first, since tables loads next before known
	l.next.Store(nil)
	return false, nil
}

// learn stores rows in memory. It calls `ends` for each row; if `ends` returns true, learn ends
// the connections of the row's user. The argument `news` is false if this
// process already knows that all tokens that the row revokes are revoked.
func (l *List) learn(rows []row, ends func(news bool) bool) {
	known, into := l.known.Load(), l.next.Load()
	if into == nil {
		into = known
	}
	var ended []string
	var erased [][sha256.Size]byte
	for _, r := range rows {
		var digest [sha256.Size]byte
		var key uint64
		if r.userID != nil {
			digest = digestOf(into.secret, *r.userID)
			key = keyOf(digest)
		} else {
			digest = [sha256.Size]byte(r.digest)
			key = erasedKeyOf(digest)
		}
		news := true
		if r.before != nil {
			before := r.before.UnixMicro()
			news = known == nil || known.get(key) < before
			into.set(key, before)
		}
		switch {
		case !ends(news):
		case r.userID != nil:
			ended = append(ended, *r.userID)
		default:
			erased = append(erased, digest)
		}
	}
	ended = append(ended, l.connected(into.secret, erased)...)
	if l.cfg.Ended != nil && len(ended) > 0 {
		l.cfg.Ended(ended)
	}
}

// connected returns the connected users whose ids have one of the given digests (see digestOf).
// It finds erased users: the table stores their digests in place of their ids.
func (l *List) connected(secret []byte, digests [][sha256.Size]byte) (found []string) {
	if len(digests) == 0 || l.cfg.Connected == nil {
		return nil
	}
	for _, userID := range l.cfg.Connected() {
		if slices.Contains(digests, digestOf(secret, userID)) {
			found = append(found, userID)
		}
	}
	return found
}
