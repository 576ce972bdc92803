package keyring

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed quotas.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

const (
	// A process reserves at least 1/parts of a key's daily quota at a time, if that much
	// remains. With more parts, the process runs more statements. With fewer parts, more of the
	// quota is lost when the process is killed.
	parts = 100
	// quotaTimeout limits the time of a statement that changes a quota. It is short, since
	// other requests with the key wait for the statement.
	quotaTimeout = 2 * time.Second
	// quotaPause begins when a reservation fails or the quota has too few events left. During the
	// pause, the process answers requests to publish at least as many events with the same error,
	// without a statement.
	quotaPause = time.Second
)

// Quotas divides the daily quotas of keys among processes: each process reserves parts of a
// quota.
type Quotas interface {
	// Take reserves a part of a key's quota of a day: `limit` events, or all remaining events if
	// fewer remain. If fewer than `least` events remain, it reserves nothing. part is the
	// number of events that it has reserved. taken is the number of events that all processes
	// together have reserved, including part.
	Take(ctx context.Context, key string, day time.Time, quota, limit, least int64) (part, taken int64, err error)
	// Return cancels the reservation of n events that were not used.
	Return(ctx context.Context, key string, day time.Time, n int64) error
}

// SharedQuotas are quotas in the table badged.key_quotas. The type implements Quotas.
type SharedQuotas struct{ Pool *pgxpool.Pool }

// Take implements Quotas.
func (s SharedQuotas) Take(ctx context.Context, key string, day time.Time, quota, limit, least int64) (part, taken int64, err error) {
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statements.Get("begin a day"), key, day); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, statements.Get("lock a day"), key, day).Scan(&taken); err != nil {
			return err
		}
		switch left := quota - taken; {
		case left >= limit:
			part = limit
		case left >= least:
			part = left
		default:
			return nil
		}
		taken += part
		_, err := tx.Exec(ctx, statements.Get("add"), key, day, part)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("reserve a part of the quota of key %s: %w", key, err)
	}
	return part, taken, nil
}

// Return implements Quotas.
func (s SharedQuotas) Return(ctx context.Context, key string, day time.Time, n int64) error {
	if _, err := s.Pool.Exec(ctx, statements.Get("add"), key, day, -n); err != nil {
		return fmt.Errorf("return a part of the quota of key %s: %w", key, err)
	}
	return nil
}

// Share makes the keys share their quotas with the keys of the same names in other processes,
// through q. Call it before the keys are used.
func (r *Ring) Share(q Quotas) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quotas = q
	for _, u := range r.usages {
		u.limit(u.quota, q)
	}
}

// unused is a number of events of a day's quota that this process has reserved and not used.
type unused struct {
	key    string
	day    time.Time
	events int64
}

// limit sets the daily quota of a key. q is the Quotas through which processes share the quota; nil
// means that they do not share it. If the quota has changed, this process may have reserved more
// events than the new quota has. So limit cancels the reservation of unused events and returns
// them; the caller must give them back to q.
func (u *usage) limit(quota int64, q Quotas) (left unused) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if quota != u.quota {
		left = u.drop()
		u.quota, u.refusedAt = quota, time.Time{}
	}
	u.quotas = q
	return left
}

// drop cancels the reservation of the unused events in u, and returns these events. The caller
// holds the mutex.
func (u *usage) drop() unused {
	left := unused{u.name, dayOf(u.day), u.part - u.published}
	u.part = u.published
	return left
}

// stop returns to Quotas all events that this process has reserved and not used.
func (r *Ring) stop(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var left []unused
	for _, u := range r.usages {
		u.mu.Lock()
		left = append(left, u.drop())
		u.mu.Unlock()
	}
	r.giveBack(ctx, left)
}

// giveBack returns unused events to Quotas. It logs errors. The caller holds the mutex.
func (r *Ring) giveBack(ctx context.Context, left []unused) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quotaTimeout)
	defer cancel()
	for _, l := range left {
		if r.quotas == nil || l.events <= 0 {
			continue
		}
		if err := r.quotas.Return(ctx, l.key, l.day, l.events); err != nil {
			r.cfg.Logger.WarnContext(ctx, "cannot return the unused part of a key's quota; it counts as used until tomorrow", "key", l.key, "events", l.events, "error", err)
		}
	}
}

// dayOf returns the beginning of a day, in UTC. day is the number of days since 1970.
func dayOf(day int64) time.Time { return time.Unix(day*secondsOfDay, 0).UTC() }

// allot makes sure that this process has reserved at least n unused events of today's quota. If
// necessary, it reserves another part. It fails with a *LimitError if the quota has too few
// events left. The caller holds the mutex.
func (k *Key) allot(ctx context.Context, n int64) error {
	u, now := k.usage, k.now()
	if u.quota == 0 { // the quota was removed
		return nil
	}
	if day := now.Unix() / secondsOfDay; day != u.day {
		u.day, u.published, u.part, u.taken, u.refusedAt = day, 0, 0, 0, time.Time{}
	}
	if u.quotas == nil {
		u.part, u.taken = u.quota, u.published
	}
	if u.published+n <= u.part {
		return nil
	}
	spent := func() error {
		u.refuse(OverQuota)
		used := u.taken
		if u.quotas != nil { // taken includes events that this process has reserved and not used
			used -= u.part - u.published
		}
		return &LimitError{
			fmt.Sprintf("the key %s may publish %d events a day, and has used %d", k.Name, u.quota, used),
			dayOf(u.day + 1).Sub(now),
		}
	}
	lately := !u.refusedAt.IsZero() && now.Sub(u.refusedAt) < quotaPause && n >= u.refusedEvents
	switch {
	case u.quotas == nil, lately && u.refusedErr == nil:
		return spent()
	case lately:
		return u.refusedErr
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quotaTimeout) // not ctx: other requests wait for this answer too
	defer cancel()
	need := u.published + n - u.part
	part, taken, err := u.quotas.Take(ctx, k.Name, dayOf(u.day), u.quota, max(need, u.quota/parts), need)
	if err == nil {
		u.part, u.taken = u.part+part, taken
	}
	if err == nil && part > 0 {
		u.refusedAt = time.Time{}
		return nil
	}
	// Read the clock again, since Take may have hung.
	if u.refusedAt, u.refusedEvents, u.refusedErr = k.now(), n, err; err != nil {
		return err
	}
	return spent()
}
