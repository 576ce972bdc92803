package splitting

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/fold/logread"
)

// letter is a child's part of a dead letter.
type letter struct {
	child   int
	payload []byte
	users   []string
}

// errLost means that the partition was moved or split since the copy began.
var errLost = errors.New("the database no longer holds the partition")

// Attempt implements copier.Operation. It copies the remaining changes, moves the dead letters, and
// makes the database hold the children instead of the parent.
func (s *splitter) Attempt(ctx context.Context, tx pgx.Tx, cursor logread.Cursor) error {
	if _, err := s.round(ctx, tx, cursor, math.MaxInt32); err != nil {
		return err
	}
	if err := s.moveLetters(ctx, tx); err != nil {
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
}

// filterLetters adds to s.letters the dead letters of the parent that it does not contain yet, each
// divided into the parts of the children.
func (s *splitter) filterLetters(ctx context.Context, tx pgx.Tx) error {
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

// letter divides a dead letter into the parts of the children, and returns one or two parts. If
// neither child gets a part, the first child gets the whole letter.
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

// moveLetters moves the parts of the dead letters to the children. If both children get a part of a
// letter, the first part has the id of the letter, and the other part gets a new id.
func (s *splitter) moveLetters(ctx context.Context, tx pgx.Tx) error {
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
		return fmt.Errorf("move the dead letters to the children: %w", err)
	}
	return nil
}
