package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxOpen is the longest time for which the page can keep a transaction open.
const maxOpen = 2 * time.Minute

// longTransaction is a transaction that the page opens and does not commit, to show that an open
// transaction does not delay badges.
type longTransaction struct {
	pool *pgxpool.Pool

	mu    sync.Mutex
	tx    pgx.Tx // nil if none is open
	id    int64
	until time.Time
	// stopped is true when the demo stops. Then no transaction may begin any more, since it would
	// block the closing of the pool.
	stopped bool
}

// transactionState describes the open transaction. OpenMS is the time until it ends, in
// milliseconds; 0 if no transaction is open.
type transactionState struct {
	OpenMS        int64 `json:"open_ms"`
	TransactionID int64 `json:"transaction_id"`
}

// open opens the transaction for the duration d. If the transaction is open already, open changes
// the time of its end to now + d.
func (l *longTransaction) open(ctx context.Context, d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return errors.New("open a transaction: the demo stops")
	}
	if l.tx == nil {
		tx, id, err := beginWriting(ctx, l.pool)
		if err != nil {
			return fmt.Errorf("open a transaction: %w", err)
		}
		l.tx, l.id = tx, id
	}
	l.until = time.Now().Add(d)
	return nil
}

// beginWriting begins a transaction and assigns it a transaction id, as a write would. It disables
// the server's idle timeout for the transaction.
func beginWriting(ctx context.Context, pool *pgxpool.Pool) (tx pgx.Tx, id int64, err error) {
	if tx, err = pool.Begin(ctx); err != nil {
		return nil, 0, err
	}
	if _, err = tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err == nil {
		err = tx.QueryRow(ctx, `SELECT pg_current_xact_id()::text::bigint`).Scan(&id)
	}
	if err != nil {
		return nil, 0, errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
	}
	return tx, id, nil
}

// end rolls the transaction back, if one is open.
func (l *longTransaction) end(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tx == nil {
		return nil
	}
	err := l.tx.Rollback(ctx) // even if this fails, the connection returns to the pool
	l.tx, l.until = nil, time.Time{}
	if err != nil {
		return fmt.Errorf("end a transaction: %w", err)
	}
	return nil
}

// stop ends the transaction and prevents new transactions.
func (l *longTransaction) stop(ctx context.Context) error {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	return l.end(ctx)
}

// state returns the state of the transaction. due is true if the transaction is open but its time
// is over.
func (l *longTransaction) state() (s transactionState, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := max(0, time.Until(l.until))
	return transactionState{left.Milliseconds(), l.id}, l.tx != nil && left == 0
}

type transactionBody struct {
	OpenMS int64 `json:"open_ms"`
}

func (d *Demo) postTransaction(ctx context.Context, body transactionBody) (any, error) {
	if body.OpenMS < 0 || body.OpenMS > maxOpen.Milliseconds() {
		return nil, refusal(fmt.Sprintf("open_ms is 0 to %d", maxOpen.Milliseconds()))
	}
	var err error
	if body.OpenMS == 0 {
		err = d.long.end(ctx)
	} else {
		err = d.long.open(ctx, time.Duration(body.OpenMS)*time.Millisecond)
	}
	state, _ := d.long.state()
	d.feed.transaction(state)
	return state, err
}

// endDue ends the transaction if its time is over, and sends the new state to the pages.
func (d *Demo) endDue(ctx context.Context) {
	if _, due := d.long.state(); !due {
		return
	}
	if err := d.long.end(ctx); err != nil && ctx.Err() == nil {
		d.cfg.Logger.WarnContext(ctx, "the transaction of the page did not end cleanly", "error", err)
	}
	state, _ := d.long.state()
	d.feed.transaction(state)
}
