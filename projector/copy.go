package projector

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// copyRows is how many rows are copied in a transaction: a few tens of
// milliseconds.
const copyRows = 5000

// copy writes the rows of users who have none yet. They come in the order of
// their ids, which builds an index by appending to it.
func (s *shadow) copy(ctx context.Context, users []*user) error {
	var rows int64
	for _, u := range users {
		rows += 1 + int64(len(u.conversations))
	}
	s.rebuild.cfg.Planned(s.partition, rows)
	g, ctx := errgroup.WithContext(ctx)
	chunks := make(chan chunk) // the next is put together while one is written
	g.Go(func() error {
		defer close(chunks)
		return s.chunks(ctx, users, chunks)
	})
	g.Go(func() error {
		for c := range chunks {
			if _, err := s.rebuild.conn.PgConn().CopyFrom(ctx, bytes.NewReader(c.lines), c.sql); err != nil {
				return fmt.Errorf("copy %d rows: %w", c.rows, err)
			}
			s.rebuild.cfg.Done(c.rows, 0)
			s.rebuild.rest(ctx)
		}
		return nil
	})
	return g.Wait()
}

// chunk is some rows of a table as COPY reads them.
type chunk struct {
	sql   string
	lines []byte
	rows  int
}

// chunks sends the rows of users.
func (s *shadow) chunks(ctx context.Context, users []*user, to chan<- chunk) error {
	userFields, conversationFields := userFields(), conversationFields()
	ofUsers := chunk{sql: copySQL(fmt.Sprintf("users_p%02d_%s", s.partition, s.suffix), "", userFields)}
	ofConversations := chunk{sql: copySQL(fmt.Sprintf("conversations_p%02d_%s", s.partition, s.suffix), ", conversation_id", conversationFields)}
	send := func(c *chunk) error {
		select {
		case to <- *c:
			c.lines, c.rows = make([]byte, 0, cap(c.lines)), 0
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, u := range users {
		if u.version > 0 {
			addLine(&ofUsers, s.partition, userFields, u, u.version, u.id)
		}
		for _, c := range sorted(u.conversations) {
			if c.touched {
				addLine(&ofConversations, s.partition, conversationFields, c, c.version, u.id, c.id)
			}
		}
		for _, c := range []*chunk{&ofUsers, &ofConversations} {
			if c.rows >= copyRows {
				if err := send(c); err != nil {
					return err
				}
			}
		}
	}
	for _, c := range []*chunk{&ofUsers, &ofConversations} {
		if c.rows > 0 {
			if err := send(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// copySQL copies what is in fields; ids are the columns of ids beside that of
// the user.
func copySQL[T any](table, ids string, fields []field[T]) string {
	columns := "partition_id, version, user_id" + ids
	for _, f := range fields {
		columns += ", " + f.name
	}
	return `COPY badged.` + table + ` (` + columns + `) FROM STDIN WITH (NULL '')`
}

// addLine adds a row.
func addLine[T any](c *chunk, partition int, fields []field[T], row T, version int64, ids ...string) {
	c.lines = strconv.AppendInt(c.lines, int64(partition), 10)
	c.lines = append(c.lines, '\t')
	c.lines = strconv.AppendInt(c.lines, version, 10)
	for _, id := range ids {
		c.lines = appendEscaped(append(c.lines, '\t'), id)
	}
	for _, f := range fields {
		c.lines = appendEscaped(append(c.lines, '\t'), f.log(row))
	}
	c.lines = append(c.lines, '\n')
	c.rows++
}

var copyEscapes = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)

// appendEscaped appends a value as COPY reads it.
func appendEscaped(line []byte, value string) []byte {
	if strings.ContainsAny(value, "\\\t\n\r") {
		value = copyEscapes.Replace(value)
	}
	return append(line, value...)
}
