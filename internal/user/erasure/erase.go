package erasure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/claims"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
)

// Config configures an erasure. Pool, Log and UserID are required.
type Config struct {
	// Pool connects as the role that owns the schema badged, or as a member of this role.
	Pool *pgxpool.Pool
	Log  *events.Log
	// UserID is a valid id. The user need not exist.
	UserID string
	// Archive is the archive of the log, opened by [archive.Continue]; nil if nothing was
	// archived.
	Archive *archive.Archive
	// Patience bounds the wait until a projector has folded the events of the user. Default
	// 30s.
	Patience time.Duration
	// Settle is the pause between revoking the user's tokens and erasing. Other processes read
	// revocations once a second, so they may still accept commands of the user during this
	// pause. Default 1.5s; no pause if it is negative.
	Settle time.Duration
}

// Erased counts the erased data.
type Erased struct {
	Partition int `json:"partition" doc:"The partition of the user."`
	// Counts counts events in the log.
	Counts
	// Archived counts events in the archive.
	Archived Counts `json:"archived" doc:"The same counts for the events in the archive."`
	// Waiting counts messages in hints, which the database stores for other databases.
	Waiting       Counts `json:"waiting" doc:"The same counts for messages to rooms that this database stores until another database can be reached again."`
	Conversations int64  `json:"conversations" doc:"The number of deleted conversations of the user."`
	Devices       int64  `json:"devices" doc:"The number of deleted devices of the user."`
	DeadLetters   int64  `json:"dead_letters" doc:"The number of dead letters that were deleted or changed."`
	Actions       int64  `json:"actions" doc:"The number of records of the audit trail from which the user's id was removed."`
}

// Add adds the counts of an erasure on another database.
func (e *Erased) Add(more Erased) {
	e.add(more.Counts)
	e.Archived.add(more.Archived)
	e.Waiting.add(more.Waiting)
	e.Conversations += more.Conversations
	e.Devices += more.Devices
	e.DeadLetters += more.DeadLetters
	e.Actions += more.Actions
}

// Errors of Erase.
var (
	// ErrArchived: a part of the log is archived, and no archive is given.
	ErrArchived = errors.New("a part of the log is archived: give its archive, so that the user is erased there too")
	// ErrNotFolded: events of the user were not folded within Patience.
	ErrNotFolded = errors.New("events that name the user are not folded yet: is a server with the role projector running? Run it, then repeat the erasure")
)

// source is the source of the events that make the user leave rooms.
const source = "badged/erasure"

// Erase removes all data of a user from the tables, the log and its archive. The service may
// run meanwhile. The numbers of other users do not change. verify and rebuild find no
// difference before, during and after the erasure. Erase succeeds if the user does not exist.
//
// First, Erase revokes the user's tokens, which ends the connections. Otherwise an app could
// send commands that it has stored, such as reads, and so create the user again. Then Erase
// appends events that make the user leave all rooms, and waits until a projector has folded
// these events. One transaction rewrites the partition of the user, and blocks folding while
// it writes. Further transactions rewrite the other partitions, where events name the user as
// sender. Last, Erase rewrites files of the archive. If Erase is interrupted, repeat the call:
// the data that was erased by committed transactions remains erased.
//
// If a later event names the same user id, badged treats the id as a new user, even if the event
// repeats an erased event.
//
// Erase fails with [ErrArchived], [ErrNotFolded], or an [*pgsession.OwnerError]. While another
// job such as a rebuild runs, it fails with a [*rebuild.RunningError]. If the database was
// restored to an earlier time, the archive may have the only copy of some events: Erase then
// fails with an [*archive.FileError] before it erases anything.
func Erase(ctx context.Context, cfg Config) (Erased, error) {
	if cfg.Patience <= 0 {
		cfg.Patience = defaultPatience
	}
	if cfg.Settle == 0 {
		cfg.Settle = defaultSettle
	}
	e := &eraser{cfg: cfg, result: Erased{Partition: cfg.Log.PartitionOf(cfg.UserID)}}
	if err := e.run(ctx); err != nil {
		return e.result, fmt.Errorf("erase a user: %w", err) // without the id, since the audit trail stores the error
	}
	return e.result, nil
}

const (
	defaultPatience = 30 * time.Second
	defaultSettle   = 1500 * time.Millisecond
	// pause is the interval at which Erase checks whether events are folded.
	pause = 50 * time.Millisecond
)

// eraser is one call of Erase.
type eraser struct {
	cfg Config
	// conn is the session that holds the lock of the job. All writes use it.
	conn *pgx.Conn
	// held are the partitions that the database holds.
	held []int
	// secret signs new revisions of archived files. noted has the erasures of this user that
	// the archive lists as incomplete, including this erasure.
	secret claims.Secret
	noted  []archive.Erasure
	// revokedBefore is the time of revocation: tokens issued before it are refused.
	revokedBefore *time.Time
	result        Erased
}

func (e *eraser) run(ctx context.Context) error {
	if err := pgsession.CheckOwner(ctx, e.cfg.Pool, "erase users"); err != nil {
		return err
	}
	job, err := rebuild.NewJob(ctx, rebuild.Config{Pool: e.cfg.Pool, Log: e.cfg.Log}, "badged user erase")
	if err != nil {
		return err
	}
	defer job.Close(ctx)
	e.conn, e.held = job.Conn, job.Held
	if err := e.checkArchive(ctx); err != nil { // under the lock of the job: the database receives no partition meanwhile
		return err
	}
	// Enable plans that batches of the projector disable: a search needs them to use an index.
	if err := query.Exec(ctx, e.conn, "set up the session", `SET enable_bitmapscan = on; SET plan_cache_mode = auto`); err != nil {
		return err
	}
	if err := query.Exec(ctx, e.conn, "drop the tables that interrupted commands left", statements.Get("drop what interrupted commands left")); err != nil {
		return err
	}
	if err := e.clean(ctx); err != nil { // before anything is erased
		return err
	}
	if err := e.revoke(ctx, e.conn); err != nil {
		return err
	}
	settled := time.Now().Add(e.cfg.Settle)
	// Erase hints before logs, since a hint may be replayed into a log.
	if e.result.Waiting, err = eraseHints(ctx, e.conn, e.cfg.UserID); err != nil {
		return err
	}
	if slices.Contains(e.held, e.result.Partition) { // else another database holds the partition
		if err := wait.For(ctx, time.Until(settled)); err != nil {
			return err
		}
		if err := e.partition(ctx, time.Now().Add(e.cfg.Patience)); err != nil {
			return fmt.Errorf("partition %d: %w", e.result.Partition, err)
		}
	}
	for _, p := range e.held {
		if err := e.others(ctx, p); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	if err := pgx.BeginFunc(ctx, e.conn, func(tx pgx.Tx) error { return e.rest(ctx, tx) }); err != nil {
		return err
	}
	if err := e.archives(ctx); err != nil {
		return err
	}
	return claims.Complete(ctx, e.conn, e.noted)
}

// checkArchive fails if a part of the log is archived but no archive is given, or if the
// archive belongs to another copy of the database.
func (e *eraser) checkArchive(ctx context.Context) error {
	archived, err := query.One[bool](ctx, e.conn, "find archived files", statements.Get("find an archived file"))
	switch {
	case err != nil:
		return err
	case e.cfg.Archive != nil:
		return claims.Check(ctx, e.conn, e.cfg.Archive)
	case archived:
		return ErrArchived
	}
	return nil
}

// leaveRooms appends events that make the user leave all rooms. With these events, a replay of
// the log still computes the right numbers of members. It reports whether the user was in any
// room.
func (e *eraser) leaveRooms(ctx context.Context) (left bool, err error) {
	rooms, err := e.rooms(ctx)
	if err != nil || len(rooms) == 0 {
		return false, err
	}
	leaves := make([]events.Event, len(rooms))
	for i, room := range rooms {
		leaves[i] = events.Event{ID: uuid.NewString(), Source: source, Type: events.RoomLeft, Data: events.Data{ConversationID: room, UserIDs: []string{e.cfg.UserID}}}
	}
	if _, err := e.cfg.Log.Append(ctx, leaves...); err != nil {
		return false, fmt.Errorf("leave %d rooms: %w", len(rooms), err)
	}
	return true, nil
}

// wait pauses. After the deadline it fails with ErrNotFolded.
func (e *eraser) wait(ctx context.Context, deadline time.Time) error {
	if !time.Now().Before(deadline) {
		return ErrNotFolded
	}
	return wait.For(ctx, pause)
}

// revoke revokes the tokens of the user that were issued before the first call of revoke. If
// the database already has a later time of revocation for this user, the later time remains.
func (e *eraser) revoke(ctx context.Context, q pgsession.Querier) (err error) {
	e.revokedBefore, err = query.One[*time.Time](ctx, q, "revoke the tokens of the user", statements.Get("revoke the tokens"), e.cfg.UserID, e.revokedBefore)
	return err
}

// rest erases data that belongs to no partition, and data that a replay of the log does not
// compute, such as devices and jobs.
func (e *eraser) rest(ctx context.Context, tx pgx.Tx) (err error) {
	e.result.Devices, err = query.One[int64](ctx, tx, "erase devices, notifications and calls of webhooks", statements.Get("erase the targets"), e.cfg.UserID)
	if err != nil {
		return err
	}
	if err := e.revoke(ctx, tx); err != nil { // again: another revocation may have stored the user id meanwhile
		return err
	}
	if err := e.letters(ctx, tx, nil); err != nil {
		return err
	}
	return e.jobs(ctx, tx)
}
