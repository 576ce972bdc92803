package operations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/operations/deadletters"
)

// cursor is a position in a list that is merged from all databases, newest first. The next page
// begins after the element with the given time and id. Elements are ordered by time, and by id if
// their times are equal. If time is nil, only the id is compared. The zero value is the beginning
// of the list.
type cursor struct {
	time *time.Time
	id   int64
}

// compare orders elements by time, then by id, newest first.
func compare(at time.Time, id int64, otherAt time.Time, otherID int64) int {
	return cmp.Or(otherAt.Compare(at), cmp.Compare(otherID, id))
}

// cursorAt returns the cursor at the element with an id, or the beginning of the list if the id is
// 0. It runs query in one database after the other; query returns the time of the element if the
// database has the element.
func cursorAt(ctx context.Context, present []*cluster.Database, id int64, query string) (cursor, error) {
	c := cursor{id: id}
	for _, s := range present {
		if id == 0 || c.time != nil {
			break
		}
		err := s.Pool.QueryRow(ctx, query, id).Scan(&c.time)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return cursor{}, s.Wrap(fmt.Errorf("find the start of the page: %w", err))
		}
	}
	return c, nil
}

// list reads one page of the list of one database. The page begins after the element `after`, or at
// the start of the list if after is nil. After the last element, the page is empty.
type list[T any] func(ctx context.Context, s *cluster.Database, after *T) ([]T, error)

// merged merges the lists of databases by the order `order` and returns the first elements: `limit`
// elements, or fewer if their sizes reach deadletters.MaxPageBytes. It returns no element only if
// the lists have no more elements.
func merged[T any](ctx context.Context, databases []*cluster.Database, limit int, order func(a, b T) int, size func(T) int, read list[T]) ([]T, error) {
	pages, ended, last := make([][]T, len(databases)), make([]bool, len(databases)), make([]*T, len(databases))
	var all []T
	for bytes := 0; len(all) < limit && bytes < deadletters.MaxPageBytes; bytes += size(all[len(all)-1]) {
		next := -1
		for i, s := range databases {
			if len(pages[i]) == 0 && !ended[i] {
				var err error
				if pages[i], err = read(ctx, s, last[i]); err != nil {
					return nil, s.Wrap(fmt.Errorf("read a page: %w", err))
				}
				ended[i] = len(pages[i]) == 0
			}
			if !ended[i] && (next < 0 || order(pages[i][0], pages[next][0]) < 0) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		one := pages[next][0]
		pages[next], last[next] = pages[next][1:], &one
		all = append(all, one)
	}
	return all, nil
}

// searched returns an element, such as a job, and its database. find reads the element from one
// database, and fails with missing if the database does not have it. If no database has the
// element, searched returns the first database and the error missing. But if a database is not
// available, and may thus have the element, it returns no database and an error that names this
// database.
func searched[T any](c *cluster.Cluster, missing error, find func(s *cluster.Database) (T, error)) (*cluster.Database, T, error) {
	var none T
	var err error
	present, away := c.Present()
	for _, s := range present {
		var found T
		if found, err = find(s); err == nil {
			return s, found, nil
		}
		if !errors.Is(err, missing) {
			return nil, none, s.Wrap(err)
		}
	}
	if away != nil {
		return nil, none, away
	}
	return present[0], none, err
}

// lengthOf returns the length of a text, 0 for nil.
func lengthOf(text *string) int {
	if text == nil {
		return 0
	}
	return len(*text)
}
