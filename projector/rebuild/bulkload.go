package rebuild

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/internal/store"
)

// BulkRows is how many rows are loaded in a transaction, which takes a few tens
// of milliseconds.
const BulkRows = 5000

// bulkLoad writes the rows of users without rows. Users are in the order of their
// ids, so that each index is built by appending.
func (s *Staging) bulkLoad(ctx context.Context, users []*badge.User) error {
	var rows int64
	for _, u := range users {
		rows += 1 + int64(len(u.Conversations))
	}
	s.job.Config.Progress.Planned(s.partition, rows)
	g, ctx := errgroup.WithContext(ctx)
	chunks := make(chan chunk) // one is prepared while another is written
	g.Go(func() error {
		defer close(chunks)
		return s.chunks(ctx, users, chunks)
	})
	g.Go(func() error {
		for c := range chunks {
			if _, err := s.job.Conn.PgConn().CopyFrom(ctx, bytes.NewReader(c.lines), c.sql); err != nil {
				return fmt.Errorf("load %d rows: %w", c.rows, err)
			}
			s.job.Config.Progress.Done(c.rows, 0)
			s.job.rest(ctx)
		}
		return nil
	})
	return g.Wait()
}

// chunk is some rows of a table in the format of COPY.
type chunk struct {
	sql   string
	lines []byte
	rows  int
}

// chunks sends the rows of users.
func (s *Staging) chunks(ctx context.Context, users []*badge.User, to chan<- chunk) error {
	ofUsers, ofConversations := chunk{sql: s.tables.Users.Copy}, chunk{sql: s.tables.Conversations.Copy}
	var user store.UserRow
	var conversation store.ConversationRow
	userColumns, conversationColumns := user.Columns(), conversation.Columns()
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
		if u.Exists() {
			user.Set(u)
			ofUsers.add(s.partition, userColumns)
		}
		for _, c := range store.Sorted(u.Conversations) {
			if c.Touched {
				conversation.Set(u.ID, c)
				ofConversations.add(s.partition, conversationColumns)
			}
		}
		for _, c := range []*chunk{&ofUsers, &ofConversations} {
			if c.rows >= BulkRows {
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

// add adds a row.
func (c *chunk) add(partition int, columns []store.Column) {
	c.lines = strconv.AppendInt(c.lines, int64(partition), 10)
	for i := range columns {
		c.lines = appendEscaped(append(c.lines, '\t'), columns[i].Text())
	}
	c.lines = append(c.lines, '\n')
	c.rows++
}

var copyEscapes = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)

// appendEscaped appends a value in the format of COPY.
func appendEscaped(line []byte, value string) []byte {
	if strings.ContainsAny(value, "\\\t\n\r") {
		value = copyEscapes.Replace(value)
	}
	return append(line, value...)
}
