package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/obs"
	"github.com/badged/badged/internal/pgfault"
)

// checkPostgres is the readiness check of Postgres. A database that can be read
// but not written is only an impairment: the gateway still serves badges.
func checkPostgres(ctx context.Context, pool *pgxpool.Pool, faults *pgfault.Watch) error {
	var readOnly bool
	if err := pool.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::boolean`).Scan(&readOnly); err != nil {
		text := faultOfRead(err).String()
		if ago, ok := faults.LastFull(); ok {
			text += fmt.Sprintf("; its disk was full %s ago", ago.Round(time.Second))
		}
		return errors.New(text)
	}
	f := faults.Present()
	if readOnly {
		f = pgfault.ReadOnly
	}
	if f == pgfault.None {
		return nil
	}
	return obs.Impaired(f.String() + ": events cannot be stored, badges can be read")
}

// faultOfRead returns the fault behind a read that failed.
func faultOfRead(err error) pgfault.Fault {
	f := pgfault.Of(err)
	if f.Reads() || f == pgfault.Slow {
		return pgfault.Unreachable
	}
	return f
}
