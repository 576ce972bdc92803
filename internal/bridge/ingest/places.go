package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/log/eventlog"
)

// places is used if there are several databases. It belongs to one partition of a broker. For each
// partition of the log, it has a place: the position in the broker's partition up to which the
// partition of the log has stored the messages.
//
// One database, the home, stores the position of the broker's partition itself. A batch is first
// appended to the other databases. The transaction in each of these databases also moves the places
// of the partitions that get events. Then the home appends its events and moves the position. If
// the process is interrupted between these steps, the next process reads the batch again, and skips
// the events that a partition has already stored according to its place.
type places struct {
	appender *cluster.Appender
	all      []*cluster.Database
	home     *cluster.Database

	mu sync.Mutex
	// byPartition maps partitions of the log to their places. known has the databases whose places
	// have been read into byPartition.
	byPartition map[int]place
	known       map[*cluster.Database]bool
}

// place is a row of badged.ingest_places.
type place struct {
	position string
	resets   int
}

// loadSharded finds the home, which is the database that stores the position, and reads the places
// of all databases.
func (p *positionOf) loadSharded(ctx context.Context) (retry bool, err error) {
	s := p.places
	byName := slices.SortedFunc(slices.Values(s.all), func(a, b *cluster.Database) int { return cmp.Compare(a.Name, b.Name) })
	s.byPartition, s.known, s.home = map[int]place{}, map[*cluster.Database]bool{}, nil
	var errs []error
	for _, db := range byName {
		err := db.Err()
		if err == nil {
			err = p.loadFrom(ctx, db)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", db.Label(), err))
		}
	}
	switch {
	case s.home == nil && len(errs) > 0:
		return false, fmt.Errorf("look for the position: %w", errors.Join(errs...))
	case s.home == nil:
		s.home = byName[0]
		if retry, err = p.loadOne(ctx, s.home.Pool); err != nil {
			return false, err
		}
	}
	p.pool, p.log = s.home.Pool, s.home.Log
	return retry, nil
}

// loadFrom reads the places that a database stores. If the database stores the position of the
// broker's partition, loadFrom reads this position and makes the database the home.
func (p *positionOf) loadFrom(ctx context.Context, db *cluster.Database) error {
	s := p.places
	if s.home == nil {
		err := db.Pool.QueryRow(ctx, statements.Get("read a position"), p.key()...).Scan(&p.position, &p.resets, new(int))
		if err == nil {
			s.home = db
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read the position: %w", err)
		}
	}
	var partition int
	var found place
	rows, _ := db.Pool.Query(ctx, statements.Get("read places"), p.key()...)
	if _, err := pgx.ForEachRow(rows, []any{&partition, &found.resets, &found.position}, func() error {
		s.byPartition[partition] = found
		return nil
	}); err != nil {
		return fmt.Errorf("read the places of partitions: %w", err)
	}
	s.known[db] = true
	return nil
}

// has reports whether a partition of the log has stored the message at a position.
func (p *positionOf) has(partition int, position string) bool {
	at, is := p.places.byPartition[partition]
	for !is { // a split has created the partition after the places were read: use the place of the partition that was split
		var ok bool
		if partition, ok = eventlog.Parent(partition, p.log.Partitions()); !ok {
			return false
		}
		at, is = p.places.byPartition[partition]
	}
	return at.resets == p.resets && !isBehind(position, at.position)
}

// isAhead reports whether any partition of the log has stored messages after the home's position.
// This happens if an earlier attempt to store a batch was interrupted.
func (p *positionOf) isAhead() bool {
	for _, at := range p.places.byPartition {
		if at.resets == p.resets && isBehind(at.position, p.position) {
			return true
		}
	}
	return false
}

// appendAll appends events to all databases except the home, and moves the places of the events'
// partitions to the position `to`. Then it calls the function `last` with the events for the home.
// If there is only one database, it just calls `last` with all events.
func (p *positionOf) appendAll(ctx context.Context, d decoded, to string, last events.Append) (events.Receipt, error) {
	evs := d.events
	if p.places == nil {
		return last(ctx, evs...)
	}
	var positions map[uuid.UUID]string
	if p.isAhead() {
		positions = map[uuid.UUID]string{} // for each event to a room, by key, the position of its message
		evs = nil
		for i := range d.events {
			e := d.events[i]
			if len(e.Data.UserIDs) == 0 {
				positions[e.Key()] = d.positions[i]
			} else if e.Data.UserIDs = p.lack(e.Data.UserIDs, d.positions[i]); len(e.Data.UserIDs) == 0 {
				continue
			} else {
				e.Data.MentionedUserIDs = p.lack(e.Data.MentionedUserIDs, d.positions[i])
			}
			evs = append(evs, e)
		}
	}
	s := p.places
	appender := s.appender.WithAppends(func(db *cluster.Database) events.Append {
		return func(ctx context.Context, evs ...events.Event) (events.Receipt, error) {
			evs = slices.DeleteFunc(slices.Clone(evs), func(e events.Event) bool {
				position, ofRoom := positions[e.Key()]
				return ofRoom && len(e.Data.UserIDs) == 0 && p.allHave(eventlog.ExpectedBy(ctx).Partitions(), position)
			})
			return p.storeIn(ctx, db, evs, to)
		}
	})
	return appender.AppendElsewhere(ctx, s.home, evs, last)
}

// lack returns the users whose partition has not stored the message at a position.
func (p *positionOf) lack(users []string, position string) (missing []string) {
	for _, user := range users {
		if !p.has(p.log.PartitionOf(user), position) {
			missing = append(missing, user)
		}
	}
	return missing
}

// allHave reports whether all given partitions have stored the message at a position.
func (p *positionOf) allHave(partitions []int, position string) bool {
	s := p.places
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(partitions, func(partition int) bool { return !p.has(partition, position) })
}

// storeIn appends events to a database. In the same transaction, it moves the places of the events'
// partitions to the position `to`.
func (p *positionOf) storeIn(ctx context.Context, db *cluster.Database, evs []events.Event, to string) (events.Receipt, error) {
	if len(evs) == 0 {
		return events.Receipt{}, nil
	}
	s := p.places
	if !s.known[db] {
		return events.Receipt{}, fmt.Errorf("the places in %s are not known, since it was unavailable; reading them again", db.Label())
	}
	touched := map[int]bool{}
	for i := range evs {
		if len(evs[i].Data.UserIDs) == 0 { // a room may have members in any partition
			for _, partition := range db.Held() {
				touched[partition] = true
			}
		}
		for _, user := range evs[i].Data.UserIDs {
			touched[p.log.PartitionOf(user)] = true
		}
	}
	var partitions []int16
	var resets []*int
	var positions []*string
	s.mu.Lock()
	for partition := range touched {
		partitions = append(partitions, int16(partition)) //nolint:gosec // there are at most 1,024
	}
	slices.Sort(partitions)
	for _, partition := range partitions {
		if at, is := s.byPartition[int(partition)]; is {
			resets, positions = append(resets, &at.resets), append(positions, &at.position)
		} else {
			resets, positions = append(resets, nil), append(positions, nil)
		}
	}
	s.mu.Unlock()
	receipt, err := db.Log.AppendWith(ctx, func(batch *pgx.Batch) {
		batch.Queue(statements.Get("move places"), append(p.key(), partitions, to, p.resets, resets, positions)...)
	}, evs...)
	if err != nil {
		return receipt, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for partition := range touched {
		s.byPartition[partition] = place{to, p.resets}
	}
	return receipt, nil
}

// isBehind reports whether position a comes after position b. A position is an offset, a sequence
// number, or an entry id that consists of two numbers.
func isBehind(a, b string) bool { return slices.Compare(numbersOf(a), numbersOf(b)) > 0 }

// numbersOf returns the numbers in a position. The position before the first message has no number.
func numbersOf(position string) (numbers []uint64) {
	id, _, _ := strings.Cut(position, "@")
	for part := range strings.SplitSeq(id, "-") {
		if n, err := strconv.ParseUint(part, 10, 64); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// loadOne reads the position in a database. It creates the position if it does not exist.
func (p *positionOf) loadOne(ctx context.Context, pool *pgxpool.Pool) (retry bool, err error) {
	created, err := pool.Exec(ctx, statements.Get("create a position"), p.key()...)
	if err != nil {
		return false, fmt.Errorf("create the position: %w", err)
	}
	var others int
	if err := pool.QueryRow(ctx, statements.Get("read a position"), p.key()...).Scan(&p.position, &p.resets, &others); err != nil {
		return false, fmt.Errorf("read the position: %w", err)
	}
	return created.RowsAffected() > 0 && others > 0, nil
}
