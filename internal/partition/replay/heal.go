package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/pubsub"
)

// healedVersions says how the versions of a healed user, and of the user's conversations, differ
// from the versions that a replay of the log computes. The zero value means that the user was
// never healed.
type healedVersions struct {
	// version is the version that healing wrote to the rows of the user and the conversations.
	// ahead is the difference between the user's version and the version that a replay computes;
	// it is constant after the healing.
	version, ahead int64
}

// user returns the version that the user's row should have. `version` is the version that a replay
// computes.
func (v healedVersions) user(version int64) int64 { return version + v.ahead }

// conversation returns the version that the row of a conversation should have. `log` is the version
// that a replay computes, and `table` is the version in the row. If the log does not have the
// conversation, `log` is 0. In this case the result is 0, or the version of the healing if the row
// has this version, since healing empties such a row instead of deleting it.
func (v healedVersions) conversation(log int64, table string) int64 {
	switch {
	case log > 0:
		return max(log+v.ahead, v.version)
	case table == number(v.version):
		return v.version
	}
	return 0
}

// healedUsers returns the healed users of the partition.
func (snapshot *Snapshot) healedUsers(ctx context.Context) (map[string]healedVersions, error) {
	healed := map[string]healedVersions{}
	var id string
	var v healedVersions
	return healed, query.Each(ctx, snapshot.Tx, "read the healed users", statements.Get("read the healed users"), []any{snapshot.Partition}, []any{&id, &v.version, &v.ahead}, func() error {
		healed[id] = v
		return nil
	})
}

// healAttempts is the number of times that Heal replays a user while the projector continues. If
// the user gets events during each of these replays, Heal blocks the projector during one more
// replay.
const healAttempts = 3

// errOvertaken is returned if the user got events during the replay.
var errOvertaken = errors.New("the user got events during the replay")

// Heal makes the rows of a user agree with the log. If the rows differed, version is the new
// version that clients see, which is above every version that clients may know. The caller must
// publish update, which makes the clients read the state again. If the rows agreed, version is
// 0.
//
// The transaction that writes the rows is short, and blocks the projector of the partition. But if
// the user gets events during every earlier attempt, this transaction also searches the log, and
// blocks the projector of the partition for as long as the search takes: seconds if the log is long.
func (v *Verifier) Heal(ctx context.Context, userID string) (update pubsub.Update, version int64, err error) {
	partition := v.log.PartitionOf(userID)
	for range healAttempts {
		var log *Replay
		var position events.Position
		err = WithSnapshot(ctx, v.pool, partition, v.log.Partitions(), func(snapshot *Snapshot) error {
			position = snapshot.Position
			if err := snapshot.UseArchive(ctx, v.archive); err != nil {
				return err
			}
			log, err = snapshot.replayOf(ctx, []string{userID})
			return err
		})
		if err == nil {
			update, version, err = v.healUser(ctx, partition, userID, log, position)
		}
		if !errors.Is(err, errOvertaken) {
			break
		}
	}
	if errors.Is(err, errOvertaken) {
		update, version, err = v.healUser(ctx, partition, userID, nil, events.Position{})
	}
	if err != nil {
		return pubsub.Update{}, 0, fmt.Errorf("heal user %q: %w", userID, err)
	}
	return update, version, nil
}

// healUser compares the rows of a user with the log, and writes the rows if they differ. `log` is
// the state of the user at `position`. If the user may have got events after `position`, healUser
// fails with errOvertaken. If `log` is nil, healUser itself replays the user. healUser locks the
// projector's position, so that no batch is folded until healUser has ended.
func (v *Verifier) healUser(ctx context.Context, partition int, userID string, log *Replay, position events.Position) (update pubsub.Update, version int64, err error) {
	err = pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		snapshot := &Snapshot{Tx: tx, Partition: partition, Partitions: v.log.Partitions()}
		if err := snapshot.Open(ctx, "FOR UPDATE"); err != nil {
			return err
		}
		if log == nil {
			if err := snapshot.UseArchive(ctx, v.archive); err != nil {
				return err
			}
			if log, err = snapshot.replayOf(ctx, []string{userID}); err != nil {
				return err
			}
		} else if changed, err := snapshot.mayHaveChanged(ctx, userID, position); err != nil {
			return err
		} else if changed {
			return errOvertaken
		}
		if differs, err := snapshot.differs(ctx, log, userID); err != nil || !differs {
			return err
		}
		update, version, err = snapshot.write(ctx, log.user(userID), log.Marks())
		return err
	})
	return update, version, err
}

// mayHaveChanged reports whether the log may have events that concern a user and come after
// `position`, but not after the position of snapshot.
func (snapshot *Snapshot) mayHaveChanged(ctx context.Context, userID string, position events.Position) (bool, error) {
	if position == snapshot.Position {
		return false, nil
	}
	if position.Before(snapshot.Baseline.Position) { // the events were removed from the log
		return true, nil
	}
	sought := seek([]string{userID}, nil)
	sought.posts = true
	f, err := snapshot.search(ctx, position, sought)
	return err == nil && len(f.ids) > 0, err
}

// differs reports whether the rows of a user differ from the log. It ignores the rows of rooms,
// which only a rebuild corrects.
func (snapshot *Snapshot) differs(ctx context.Context, log *Replay, userID string) (bool, error) {
	c, err := snapshot.newComparison(ctx, VerifyOptions{Users: []string{userID}, Found: func(Difference) {}})
	if err != nil {
		return false, err
	}
	c.roomsDone = true
	compared := *log.user(userID) // a copy, since comparing removes the state
	compared.Conversations = maps.Clone(compared.Conversations)
	err = c.compare(ctx, &Replay{Users: map[string]*badge.User{userID: &compared}, Rooms: log.Rooms, Wants: log.Wants})
	return c.result.Differences > 0, err
}

// write replaces the rows of a user by the state `log` and the marks that a replay has computed.
// The new version of the user is above the version in the table and above the version in `log`.
// write returns an update that makes clients read the state again, and the new version that they
// see.
func (snapshot *Snapshot) write(ctx context.Context, log *badge.User, marks []Mark) (pubsub.Update, int64, error) {
	live := map[string]int64{} // the versions of the conversations in the table
	var id string
	var version int64
	if err := query.Each(ctx, snapshot.Tx, "read the conversations", statements.Of(snapshot.Partition, "read the versions of conversations"), []any{log.ID}, []any{&id, &version}, func() error {
		live[id] = version
		return nil
	}); err != nil {
		return pubsub.Update{}, 0, err
	}
	var epoch string
	if err := snapshot.Tx.QueryRow(ctx, statements.Of(snapshot.Partition, "read the version of a user"), log.ID, snapshot.Partition).Scan(&epoch, &version, &log.HasRow); err != nil {
		return pubsub.Update{}, 0, fmt.Errorf("read the user: %w", err)
	}

	before, after, err := snapshot.versionsAhead(ctx, log)
	if err != nil {
		return pubsub.Update{}, 0, err
	}
	v := healedVersions{version: max(version+before-after, log.Version) + 1}
	v.ahead = v.version - log.Version
	log.Version, log.Stored = v.version, version
	ids := make([]string, 0, len(live))
	for id := range live {
		ids = append(ids, id)
		if c := log.Conversation(id); !c.Touched {
			// The log does not have the conversation. Empty the row instead of deleting it, so
			// that clients get the change.
			c.Touched = true
			log.Changed = append(log.Changed, c)
		}
	}
	for _, c := range log.Conversations {
		_, c.Stored = live[c.ID]
		if c.Version > 0 || live[c.ID] > 0 {
			c.Version = v.version
		}
	}
	log.Paths.Rewrite()
	var batch pgx.Batch
	store.NewTables(snapshot.Partition).QueueWrites(&batch, []*badge.User{log}, nil)
	batch.Queue(statements.Of(snapshot.Partition, "delete marks"), log.ID, ids)
	for _, m := range marks {
		batch.Queue(statements.Of(snapshot.Partition, "add a mark"), snapshot.Partition, m.Room, m.Seq, m.User, m.Own)
	}
	// The owner of the partition may have cached the old rows.
	batch.Queue(statements.Get("raise the revision"), snapshot.Partition)
	batch.Queue(statements.Get("tell of the user"), snapshot.Partition, log.ID)
	batch.Queue(statements.Get("record a healed user"), snapshot.Partition, log.ID, v.version, v.ahead)
	batch.Queue(store.ResetExpirySQL, snapshot.Partition)
	if err := snapshot.Tx.SendBatch(ctx, &batch).Close(); err != nil {
		return pubsub.Update{}, 0, fmt.Errorf("write: %w", err)
	}
	return pubsub.Update{
		Badge:     store.PublicBadge(log, epoch),
		Partition: snapshot.Partition,
		// A client applies an update only if the client has the update's base version. No client
		// has this version, so every client reads the state again.
		BaseVersion:   v.version + log.Carried,
		Conversations: []pubsub.Conversation{},
	}, v.version + after, nil
}

// versionsAhead returns the difference between the version that clients see and the version in the
// user's row. Changes of the user's rooms raise only the version that clients see. `before` is the
// difference according to the memberships in the tables, and `after` according to the memberships
// in the log.
func (snapshot *Snapshot) versionsAhead(ctx context.Context, log *badge.User) (before, after int64, err error) {
	var rooms []string
	var joined []int64
	for id, c := range log.Conversations {
		if c.Member() {
			rooms, joined = append(rooms, id), append(joined, c.Membership.Joined)
		}
	}
	err = snapshot.Tx.QueryRow(ctx, statements.Of(snapshot.Partition, "read how far versions are ahead"), log.ID, rooms, joined).Scan(&before, &after)
	if err != nil {
		return 0, 0, fmt.Errorf("read the rooms of the user: %w", err)
	}
	return before, after + log.Carried, nil
}
