package rebuild

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/partition/replay"
)

// BulkRows is the number of rows that one transaction loads. The transaction takes some tens of
// milliseconds.
const BulkRows = 5000

// bulkLoad loads the users of a replay and their marks (see [replay.Mark]) into the staging tables.
// If `rooms` is true, it also loads all rooms. It loads rows in the order of their primary keys, so
// that Postgres appends to each index.
func (s *Staging) bulkLoad(ctx context.Context, r *replay.Replay, rooms bool) error {
	users := store.Sorted(r.Users)
	var rows int64
	for _, u := range users {
		rows += 1 + int64(len(u.Conversations))
	}
	s.job.Config.Progress.Planned(s.partition, rows)
	g, ctx := errgroup.WithContext(ctx)
	chunks := make(chan chunk) // the next chunk is prepared while a chunk is written
	g.Go(func() error {
		defer close(chunks)
		l := &loader{partition: s.partition, to: chunks}
		if err := l.users(ctx, s.tables, users); err != nil {
			return err
		}
		if err := l.marks(ctx, s.tables, r); err != nil || !rooms {
			return err
		}
		return l.rooms(ctx, s.tables, r)
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

// chunk is at most BulkRows rows of one table, in the text format of COPY.
type chunk struct {
	sql     string
	columns []store.Column
	lines   []byte
	rows    int
}

// loader sends rows in chunks to a channel.
type loader struct {
	partition int
	to        chan<- chunk
}

// add adds a row to a chunk, and sends the chunk when it is full.
func (l *loader) add(ctx context.Context, c *chunk) error {
	c.add(l.partition, c.columns)
	if c.rows < BulkRows {
		return nil
	}
	return l.flush(ctx, c)
}

// flush sends the chunks that have rows.
func (l *loader) flush(ctx context.Context, chunks ...*chunk) error {
	for _, c := range chunks {
		if c.rows == 0 {
			continue
		}
		select {
		case l.to <- *c:
			c.lines, c.rows = make([]byte, 0, cap(c.lines)), 0
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// users sends the rows of users, of their paths and of their conversations.
func (l *loader) users(ctx context.Context, tables *store.Tables, users []*badge.User) error {
	var user store.UserRow
	var conversation store.ConversationRow
	var path store.PathRow
	ofPaths := chunk{sql: tables.Paths.Copy, columns: path.Columns()}
	ofUsers, ofConversations := chunk{sql: tables.Users.Copy, columns: user.Columns()}, chunk{sql: tables.Conversations.Copy, columns: conversation.Columns()}
	for _, u := range users {
		if u.Exists() {
			user.Set(u)
			if err := l.add(ctx, &ofUsers); err != nil {
				return err
			}
		}
		for _, p := range u.Paths.AllRows() {
			path.Set(u, p)
			if err := l.add(ctx, &ofPaths); err != nil {
				return err
			}
		}
		for _, c := range store.Sorted(u.Conversations) {
			if c.Touched {
				conversation.Set(u.ID, c)
				if err := l.add(ctx, &ofConversations); err != nil {
					return err
				}
			}
		}
	}
	return l.flush(ctx, &ofUsers, &ofPaths, &ofConversations)
}

// marks sends the rows of the marks of a replay's users; see [replay.Mark].
func (l *loader) marks(ctx context.Context, tables *store.Tables, r *replay.Replay) error {
	var row store.MarkRow
	c := chunk{sql: tables.Marks.Copy, columns: row.Columns()}
	for _, m := range r.Marks() {
		row.Set(m.Room, m.Seq, m.User, m.Own)
		if err := l.add(ctx, &c); err != nil {
			return err
		}
	}
	return l.flush(ctx, &c)
}

// rooms sends the rows of rooms and of their closed chunks (older messages).
func (l *loader) rooms(ctx context.Context, tables *store.Tables, r *replay.Replay) error {
	var room store.RoomRow
	var closed store.ChunkRow
	ofRooms, ofChunks := chunk{sql: tables.Rooms.Copy, columns: room.Columns()}, chunk{sql: tables.Chunks.Copy, columns: closed.Columns()}
	for _, of := range store.Sorted(r.Rooms) {
		if !of.Exists() {
			continue
		}
		room.Set(of)
		if err := l.add(ctx, &ofRooms); err != nil {
			return err
		}
		for _, c := range of.Closed {
			closed.Set(of.ID, c)
			if err := l.add(ctx, &ofChunks); err != nil {
				return err
			}
		}
	}
	return l.flush(ctx, &ofRooms, &ofChunks)
}

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
