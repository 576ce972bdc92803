package erasure

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/log/tombstones"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/claims"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/internal/user/logview"
)

// Lost describes the erasures that the archive lists but that the database has not recorded as
// complete. The reason is that an erasure was interrupted, or that the database was restored
// to a time before the erasure.
type Lost struct {
	// Users has those users of these erasures whose data the database still has, or has again.
	Users []string
	// Gone are the erasures whose users have no data any more.
	Gone []archive.Erasure
}

// FindLost finds the lost erasures and their users. The archive stores only a hash of each
// erased user id, so FindLost compares these hashes with the hash of every id in the tables,
// the log and the archive. It ignores cfg.UserID.
func FindLost(ctx context.Context, cfg Config) (lost Lost, err error) {
	incomplete, err := claims.Incomplete(ctx, cfg.Pool, cfg.Archive)
	if err != nil || len(incomplete) == 0 {
		return lost, err
	}
	f := finder{cfg: cfg, sought: map[string]bool{}, found: map[string]string{}}
	for _, e := range incomplete {
		f.sought[e.Digest] = true
	}
	if f.secret, err = claims.ReadSecret(ctx, cfg.Pool); err != nil {
		return lost, err
	}
	if err := f.search(ctx); err != nil {
		return lost, fmt.Errorf("find users who were erased: %w", err)
	}
	lost.Users = slices.Sorted(maps.Values(f.found))
	for _, e := range incomplete {
		if f.found[e.Digest] == "" {
			lost.Gone = append(lost.Gone, e)
		}
	}
	return lost, nil
}

// Forget records that the erasures in Gone are complete.
func (l *Lost) Forget(ctx context.Context, cfg Config) error {
	return claims.Complete(ctx, cfg.Pool, l.Gone)
}

// finder finds users by the digests of their ids.
type finder struct {
	cfg    Config
	secret claims.Secret
	sought map[string]bool
	// found maps the digests to the user ids.
	found map[string]string
}

func (f *finder) see(users ...string) {
	for _, user := range users {
		if user == "" {
			continue
		}
		if digest := f.secret.Digest(user); f.sought[digest] {
			f.found[digest] = user
		}
	}
}

func (f *finder) search(ctx context.Context) error {
	held, err := eventlog.Held(ctx, f.cfg.Pool)
	if err != nil {
		return err
	}
	queries := []string{statements.Get("read ids")}
	for _, p := range held {
		queries = append(queries, statements.Of(p, "read the ids of a partition"))
	}
	for _, sql := range queries {
		var user string
		if err := query.Each(ctx, f.cfg.Pool, "read the ids of users", sql, nil, []any{&user}, func() error {
			f.see(user)
			return nil
		}); err != nil {
			return err
		}
	}
	if err := f.trail(ctx); err != nil {
		return err
	}
	view := logview.New(f.cfg.Pool, f.cfg.Log, logview.Filter{Partitions: held})
	if err := view.Next(ctx, func(_ int, r *events.Record) error {
		f.record(r)
		return nil
	}); err != nil {
		return err
	}
	for _, p := range held {
		files, err := replay.ArchivedFiles(ctx, f.cfg.Pool, f.cfg.Archive, p)
		if err != nil {
			return err
		}
		for _, file := range files {
			if file.GivenUp != nil {
				continue
			}
			if err := f.cfg.Archive.Read(ctx, file, func(records []archive.Record) error {
				for i := range records {
					f.record(&records[i].Record)
				}
				return nil
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// trail looks for sought users among the users of actions in the audit trail.
func (f *finder) trail(ctx context.Context) error {
	var text []byte
	return query.Each(ctx, f.cfg.Pool, "read the audit trail", statements.Get("read the arguments that may name a user"), nil, []any{&text}, func() error {
		var arguments struct {
			User string `json:"user"`
		}
		if err := json.Unmarshal(text, &arguments); err == nil { // the user of an action is always text
			f.see(arguments.User)
		}
		return nil
	})
}

// record looks for sought users among the users that an event names.
func (f *finder) record(r *events.Record) {
	e, err := events.Decode(tombstones.EventIn(r.Payload))
	if err != nil {
		return // a dead letter names no users
	}
	f.see(e.Data.UserIDs...)
	f.see(e.Data.MentionedUserIDs...)
	f.see(e.Data.SenderID)
}
