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
	"github.com/badged/badged/internal/pgsession"
	"github.com/badged/badged/internal/wait"
	"github.com/badged/badged/projector/archive"
	"github.com/badged/badged/projector/internal/claims"
	"github.com/badged/badged/projector/rebuild"
)

// Config configures an erasure. Pool, Log and UserID are required.
type Config struct {
	// Pool connects as the owner of the schema badged, or a member of that role.
	Pool *pgxpool.Pool
	Log  *events.Log
	// UserID is a valid id, known to badged or not.
	UserID string
	// Archive is the archive of the log, opened by [archive.Continue]; nil if nothing was
	// archived.
	Archive *archive.Archive
	// Patience is how long to wait for a projector that folds events of the user;
	// default 30 s.
	Patience time.Duration
	// Settle is how long to wait, after the tokens of the user were revoked, for commands
	// that processes had accepted before; default 1.5 s, none if it is negative. A process
	// knows within a second what is revoked.
	Settle time.Duration
}

// Erased says what was erased.
type Erased struct {
	Partition int `json:"partition" doc:"The partition of the user."`
	// Counts are of the log.
	Counts
	// Archived are of the archive.
	Archived Counts `json:"archived" doc:"The same of the archive."`
	// Waiting counts messages in hints for other shards.
	Waiting       Counts `json:"waiting" doc:"The same of messages to rooms that wait for shards that were away."`
	Conversations int64  `json:"conversations" doc:"Conversations of the user."`
	Devices       int64  `json:"devices" doc:"Devices of the user."`
	DeadLetters   int64  `json:"dead_letters" doc:"Dead letters that were removed or changed."`
	Actions       int64  `json:"actions" doc:"Records of the audit trail that do not name the user any more. Erase leaves it 0: the trail is none of the projector's."`
}

// Add adds what was erased elsewhere.
func (e *Erased) Add(more Erased) {
	e.add(more.Counts)
	e.Archived.add(more.Archived)
	e.Waiting.add(more.Waiting)
	e.Conversations += more.Conversations
	e.Devices += more.Devices
	e.DeadLetters += more.DeadLetters
	e.Actions += more.Actions
}

// The reasons for which nothing is erased.
var (
	// ErrArchived is returned without an archive if a part of the log is archived.
	ErrArchived = errors.New("a part of the log is archived: give its archive, so that the user is erased there too")
	// ErrNotFolded is returned if events of the user are not folded within the
	// patience.
	ErrNotFolded = errors.New("events that name the user are not folded yet: is a server with the role projector running? Run it, then repeat the erasure")
)

// source is the source of the events that take the user out of rooms.
const source = "badged/erasure"

// Erase removes everything that badged holds of a user from the tables, the log and its
// archive, while the service runs. The numbers of all others stay, and verifying and
// rebuilding find no difference before, during and after it. An unknown user is no
// error.
//
// It first revokes the tokens that were issued until now, which ends the connections: an
// app whose token stayed valid would send what it has stored, such as reads, and make the
// user anew. Then it takes the user out of rooms, through the log, which a projector must
// fold.
// Then one transaction changes the partition of the user: folding waits there for as
// long as its writes take. The other partitions, which name the user as a sender, follow
// in transactions of their own. Last, files of the archive are written anew. If it is
// interrupted it can be repeated: what was committed stays erased.
//
// An event that commits later counts as the first of a new user, also if it repeats one
// that was erased.
//
// It fails with [ErrArchived], [ErrNotFolded], an [*pgsession.OwnerError], or a
// [*rebuild.RunningError] while a rebuild, an archiving or another erasure runs. It fails
// with an [*archive.FileError], before it erases anything, if the archive has a file whose
// events the log lacks, since the database was restored to before the file was written.
func Erase(ctx context.Context, cfg Config) (Erased, error) {
	if cfg.Patience <= 0 {
		cfg.Patience = defaultPatience
	}
	if cfg.Settle == 0 {
		cfg.Settle = defaultSettle
	}
	e := &eraser{cfg: cfg, result: Erased{Partition: cfg.Log.PartitionOf(cfg.UserID)}}
	if err := e.run(ctx); err != nil {
		return e.result, fmt.Errorf("erase a user: %w", err) // without the id: the audit trail has the error
	}
	return e.result, nil
}

const (
	defaultPatience = 30 * time.Second
	defaultSettle   = 1500 * time.Millisecond
	// pause is between looks at what a projector has folded.
	pause = 50 * time.Millisecond
)

// eraser is one call of Erase.
type eraser struct {
	cfg Config
	// conn holds the lock of the job. All writes use it.
	conn *pgx.Conn
	// held are the partitions of the database.
	held []int
	// secret proves to copies of the database what became of archived files, and noted are
	// the erasures of the user of which the archive knows.
	secret claims.Secret
	noted  []archive.Erasure
	// revokedBefore is the moment before which tokens are refused.
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
	if err := e.checkArchive(ctx); err != nil { // with the lock: no partition comes to the shard now
		return err
	}
	if _, err := e.conn.Exec(ctx, statements.Get("drop what interrupted commands left")); err != nil {
		return fmt.Errorf("drop the tables that interrupted commands left: %w", err)
	}
	if err := e.clean(ctx); err != nil { // before anything is erased
		return err
	}
	if err := e.revoke(ctx, e.conn); err != nil {
		return err
	}
	settled := time.Now().Add(e.cfg.Settle)
	// Before the logs, to one of which they may come.
	if e.result.Waiting, err = eraseHints(ctx, e.conn, e.cfg.UserID); err != nil {
		return err
	}
	if slices.Contains(e.held, e.result.Partition) { // else it is on another shard
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

// checkArchive fails if a part of the log is archived and no archive is given, or that
// belongs to another copy of the database.
func (e *eraser) checkArchive(ctx context.Context) error {
	var archived bool
	if err := e.conn.QueryRow(ctx, statements.Get("find an archived file")).Scan(&archived); err != nil {
		return fmt.Errorf("look for an archive: %w", err)
	}
	if archived && e.cfg.Archive == nil {
		return ErrArchived
	}
	if e.cfg.Archive == nil {
		return nil
	}
	return claims.Check(ctx, e.conn, e.cfg.Archive)
}

// leave takes the user out of all rooms, as a backend does: how many members the rooms
// have, and the log, go on agreeing. It returns whether there was one.
func (e *eraser) leave(ctx context.Context) (left bool, err error) {
	rooms, err := e.rooms(ctx)
	if err != nil || len(rooms) == 0 {
		return false, err
	}
	leaves := make([]events.Event, len(rooms))
	for i, room := range rooms {
		leaves[i] = events.Event{ID: uuid.NewString(), Source: source, Type: events.RoomLeft, Data: events.Data{ConversationID: room, UserIDs: []string{e.cfg.UserID}}}
	}
	if _, err := e.cfg.Log.Append(ctx, leaves...); err != nil {
		return false, fmt.Errorf("take the user out of %d rooms: %w", len(rooms), err)
	}
	return true, nil
}

// wait waits a moment, unless the deadline has come.
func (e *eraser) wait(ctx context.Context, deadline time.Time) error {
	if !time.Now().Before(deadline) {
		return ErrNotFolded
	}
	return wait.For(ctx, pause)
}

// revoke revokes the tokens that were issued until the first call, or until what was
// revoked already.
func (e *eraser) revoke(ctx context.Context, in interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) error {
	if err := in.QueryRow(ctx, statements.Get("revoke the tokens"), e.cfg.UserID, e.revokedBefore).Scan(&e.revokedBefore); err != nil {
		return fmt.Errorf("revoke the tokens of the user: %w", err)
	}
	return nil
}

// rest erases what belongs to no partition, or does not follow from the log.
func (e *eraser) rest(ctx context.Context, tx pgx.Tx) error {
	if err := tx.QueryRow(ctx, statements.Get("erase the targets"), e.cfg.UserID).Scan(&e.result.Devices); err != nil {
		return fmt.Errorf("erase devices, notifications and calls of webhooks: %w", err)
	}
	if err := e.revoke(ctx, tx); err != nil { // also what was revoked meanwhile, under the id
		return err
	}
	if err := e.letters(ctx, tx, nil); err != nil {
		return err
	}
	return e.jobs(ctx, tx)
}
