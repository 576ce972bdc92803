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
	"github.com/badged/badged/projector/replay"
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
	userFields, conversationFields := replay.UserFields(), replay.ConversationFields()
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
		if u.Exists() {
			addLine(&ofUsers, s.partition, userFields, u, u.Version, u.ID)
		}
		for _, c := range store.Sorted(u.Conversations) {
			if c.Touched {
				addLine(&ofConversations, s.partition, conversationFields, c, c.Version, u.ID, c.ID)
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

// copySQL returns the COPY statement for fields; ids are the key columns
// besides the user's.
func copySQL[T any](table, ids string, fields []replay.Field[T]) string {
	columns := "partition_id, version, user_id" + ids
	for _, f := range fields {
		columns += ", " + f.Name
	}
	return `COPY badged.` + table + ` (` + columns + `) FROM STDIN WITH (NULL '')`
}

// addLine adds a row.
func addLine[T any](c *chunk, partition int, fields []replay.Field[T], row T, version int64, ids ...string) {
	c.lines = strconv.AppendInt(c.lines, int64(partition), 10)
	c.lines = append(c.lines, '\t')
	c.lines = strconv.AppendInt(c.lines, version, 10)
	for _, id := range ids {
		c.lines = appendEscaped(append(c.lines, '\t'), id)
	}
	for _, f := range fields {
		c.lines = appendEscaped(append(c.lines, '\t'), f.Log(row))
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
