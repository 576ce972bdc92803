package splitting

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// letter is the share that a child has of a dead letter.
type letter struct {
	child   int
	payload []byte
	users   []string
}

// errLost means that the partition has gone meanwhile.
var errLost = errors.New("the database does not have the partition any more")

// attempt closes the gates and, if all is folded soon, copies the rest and makes the
// switch.
func (s *splitter) attempt(ctx context.Context) error {
	s.cfg.Progress(Switching, s.result.Rows)
	s.result.Attempts++
	before := s.copied
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // a database that hangs
	defer cancel()
	var closed time.Time
	err := s.In(ctx, func(tx pgx.Tx) error {
		began, at, err := s.CloseGates(ctx, tx, s.cfg.Patience)
		closed = began
		if err != nil {
			return err
		}
		if _, err := s.round(ctx, tx, at, math.MaxInt32); err != nil {
			return err
		}
		if err := s.giveLetters(ctx, tx); err != nil {
			return err
		}
		var held bool
		if err := tx.QueryRow(ctx, statements.Get("split"), s.Partition, []int{s.children[0].Child, s.children[1].Child}).Scan(&held); err != nil {
			return err
		}
		if !held {
			return errLost
		}
		return s.Overdue()
	})
	if err != nil {
		s.copied = before
		return err
	}
	s.held, s.closed, s.result.Paused = false, closed, time.Since(closed)
	return nil
}

// shareLetters finds out which dead letters the children get, as far as it is not known.
func (s *splitter) shareLetters(ctx context.Context, tx pgx.Tx) error {
	known := make([]int64, 0, len(s.letters))
	for id := range s.letters {
		known = append(known, id)
	}
	rows, _ := tx.Query(ctx, statements.Get("letters"), s.Partition, known)
	var id int64
	var payload []byte
	var users []string
	_, err := pgx.ForEachRow(rows, []any{&id, &payload, &users}, func() (err error) {
		s.letters[id], err = s.letter(payload, users)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	return nil
}

// letter returns the shares of a dead letter: at least one child has it.
func (s *splitter) letter(payload []byte, users []string) (shares []letter, err error) {
	for _, c := range s.children {
		part, n, err := c.Row(payload)
		if err != nil {
			return nil, err
		}
		l := letter{child: c.Child, payload: append([]byte(nil), part...)}
		if users != nil {
			l.users = c.Users(users)
		}
		if n > 0 && (users == nil || len(l.users) > 0) {
			shares = append(shares, l)
		}
	}
	if len(shares) == 0 {
		shares = []letter{{child: s.children[0].Child, payload: append([]byte(nil), payload...), users: users}}
	}
	if payload == nil {
		shares[0].payload = nil
	}
	return shares, nil
}

// giveLetters gives the dead letters to the children. The ids stay with the first share.
func (s *splitter) giveLetters(ctx context.Context, tx pgx.Tx) error {
	var batch pgx.Batch
	for id, shares := range s.letters {
		for i := len(shares) - 1; i >= 0; i-- {
			sql := statements.Get("copy a letter")
			if i == 0 {
				sql = statements.Get("give a letter")
			}
			batch.Queue(sql, id, shares[i].child, shares[i].payload, shares[i].users)
		}
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("give the dead letters to the children: %w", err)
	}
	return nil
}
