package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
)

// crowd makes guests join and leave the room, until the room has the number of members that a page
// has asked for.
type crowd struct {
	store *store
	// isFolded reports whether the badges in all partitions include all events up to a transaction.
	isFolded func(ctx context.Context, transactionID int64) (bool, error)
	// show sends the state to the open pages.
	show   func(crowdState)
	logger *slog.Logger
	// resizeRequested receives a value when the target has changed.
	resizeRequested chan struct{}
	// published is the id of the last transaction in which members joined or left.
	published int64

	mu    sync.Mutex
	state crowdState
}

// crowdState has the current and the requested number of members of the room.
type crowdState struct {
	Members int `json:"members"`
	Target  int `json:"target"`
	// Trouble explains to the user of the page why the number of members does not change at the
	// moment. It is empty if nothing delays the change.
	Trouble string `json:"trouble,omitempty"`
}

const (
	// hosts is the number of people who are members of the room. The other members are guests.
	hosts = 2
	// fewestMembers is the minimum number of members. The room then still has some guests, since
	// guests send the messages.
	fewestMembers = 5
	mostMembers   = 100_000
	// stepSize is the maximum number of guests that join or leave in one transaction. The next
	// transaction begins only when the badges of all users include the previous transaction, so
	// that the badges on the phones are never far behind.
	stepSize = 5_000
	// stepTimeout bounds one step. A step takes less time even on a busy machine.
	stepTimeout = 10 * time.Second
	// retryPause is the pause between attempts while the database does not answer.
	retryPause = time.Second
)

// errBehind is returned if the badges do not include a transaction in time.
var errBehind = errors.New("badges are behind")

// guestID returns the user id of a guest. Guests join in the order of their numbers, from 1,
// and leave in the reverse order.
func guestID(number int) string { return guestPrefix + strconv.Itoa(number) }

const guestPrefix = "guest-"

// guestIDs returns the ids of the guests with the numbers above+1 to upTo.
func guestIDs(above, upTo int) []string {
	ids := make([]string, 0, upTo-above)
	for n := above + 1; n <= upTo; n++ {
		ids = append(ids, guestID(n))
	}
	return ids
}

// ask sets the number of members that the room should have, and returns the new state.
func (c *crowd) ask(members int) crowdState {
	s := c.update(func(s *crowdState) { s.Target = members })
	wait.Wake(c.resizeRequested)
	return s
}

func (c *crowd) now() crowdState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// update changes the state and sends it to the open pages.
func (c *crowd) update(change func(*crowdState)) crowdState {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.state)
	c.show(c.state)
	return c.state
}

// run makes guests join or leave after each change of the target, until ctx is done.
func (c *crowd) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.resizeRequested:
		}
		for s := c.now(); (s.Members != s.Target || s.Trouble != "") && ctx.Err() == nil; s = c.now() {
			if err := c.step(ctx, s.Target); err != nil && ctx.Err() == nil {
				c.report(ctx, err)
				c.pause(ctx)
			}
		}
	}
}

// step makes up to stepSize guests join or leave, and waits until the badges include this change.
func (c *crowd) step(ctx context.Context, target int) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	guests, receipt, err := c.store.resize(ctx, target-hosts, stepSize)
	if err != nil {
		return err
	}
	c.published = max(c.published, receipt.TransactionID)
	if err := awaitFolded(ctx, c.isFolded, c.published); err != nil {
		return err
	}
	c.update(func(s *crowdState) { s.Members, s.Trouble = guests+hosts, "" })
	return nil
}

// report shows and logs why a step failed. If several attempts in a row fail for the same reason,
// report shows and logs the reason only once.
func (c *crowd) report(ctx context.Context, err error) {
	trouble := "The database does not answer. The demo tries again."
	if errors.Is(err, errBehind) {
		trouble = "Badges are behind. The demo waits for them."
	}
	if c.now().Trouble == trouble {
		return
	}
	c.logger.WarnContext(ctx, "the room could not be resized; trying again", "error", err)
	c.update(func(s *crowdState) { s.Trouble = trouble })
}

// pause waits before the next attempt.
func (c *crowd) pause(ctx context.Context) {
	_ = wait.For(ctx, retryPause)
}

// awaitFolded waits until the badges include a transaction. If ctx ends first, it returns
// errBehind.
func awaitFolded(ctx context.Context, isFolded func(context.Context, int64) (bool, error), transactionID int64) error {
	const longest = 50 * time.Millisecond
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		folded, err := isFolded(ctx, transactionID)
		if err != nil || folded {
			return err
		}
		if err := wait.For(ctx, pause); err != nil {
			return fmt.Errorf("%w: transaction %d: %w", errBehind, transactionID, err)
		}
	}
}

// open creates the room with its first members, unless the room exists. It returns the number of
// guests in the room.
func (s *store) open(ctx context.Context) (guests int, err error) {
	var receipt events.Receipt
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		made, err := tx.Exec(ctx, `INSERT INTO demo.rooms VALUES ($1, $2) ON CONFLICT DO NOTHING`, townHall, fewestMembers-hosts)
		if err != nil {
			return err
		}
		if made.RowsAffected() == 0 {
			return tx.QueryRow(ctx, `SELECT guests FROM demo.rooms WHERE conversation_id = $1`, townHall).Scan(&guests)
		}
		room, err := findConversation(townHall)
		if err != nil {
			return err
		}
		guests = fewestMembers - hosts
		receipt, err = s.log.Publish(ctx, tx, membersChange(events.RoomJoined, append(guestIDs(0, guests), room.Members...)))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("open the room of the demo: %w", err)
	}
	s.wake(receipt.Partitions)
	return guests, nil
}

// resize makes at most `limit` guests join or leave the room, so that the number of guests comes
// closer to `target`. It returns the new number. It reads the current number from the table: if
// the answer to an earlier commit was lost, only the table shows whether that commit succeeded.
func (s *store) resize(ctx context.Context, target, limit int) (guests int, receipt events.Receipt, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var former int
		err := tx.QueryRow(ctx, `SELECT guests FROM demo.rooms WHERE conversation_id = $1 FOR UPDATE`, townHall).Scan(&former)
		if err != nil {
			return fmt.Errorf("read the number of guests: %w", err)
		}
		guests = former + max(-limit, min(target-former, limit))
		if guests == former {
			return nil
		}
		if _, err := tx.Exec(ctx, `UPDATE demo.rooms SET guests = $2 WHERE conversation_id = $1`, townHall, guests); err != nil {
			return fmt.Errorf("store the number of guests: %w", err)
		}
		t, some := events.RoomJoined, guestIDs(min(former, guests), max(former, guests))
		if guests < former {
			t = events.RoomLeft
		}
		receipt, err = s.log.Publish(ctx, tx, membersChange(t, some))
		return err
	})
	if err != nil {
		return 0, events.Receipt{}, fmt.Errorf("resize the room: %w", err)
	}
	s.wake(receipt.Partitions)
	return guests, receipt, nil
}

// membersChange returns an event by which users join or leave the room.
func membersChange(t events.Type, users []string) events.Event {
	return events.Event{
		ID: string(t) + "/" + rand.Text(), Source: eventSource, Type: t,
		Data: events.Data{ConversationID: townHall, UserIDs: users},
	}
}
