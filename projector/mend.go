package projector

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

// mend is how the versions of a user that was mended differ from those that the
// log gives. The zero mend is of a user who never was.
type mend struct {
	// version is what the user and its conversations got; ahead is how far the
	// user's versions are above the log's since.
	version, ahead int64
}

// user returns the version that a user has for one that the log gives.
func (m mend) user(version int64) int64 { return version + m.ahead }

// fits reports whether a conversation may have a version for one that the log
// gives. A conversation that the log gives none has none, or was in the tables
// all the same when its user was mended.
func (m mend) fits(table, log int64) bool {
	if log == 0 {
		return table == 0 || table == m.version
	}
	return table == max(log+m.ahead, m.version)
}

// mends returns those who were mended in the partition.
func (in *instant) mends(ctx context.Context) (map[string]mend, error) {
	rows, err := in.tx.Query(ctx, `SELECT user_id, version, ahead FROM badged.mended_users WHERE partition_id = $1`, in.partition)
	if err != nil {
		return nil, fmt.Errorf("read who was mended: %w", err)
	}
	mends := map[string]mend{}
	var id string
	var m mend
	if _, err = pgx.ForEachRow(rows, []any{&id, &m.version, &m.ahead}, func() error {
		mends[id] = m
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read who was mended: %w", err)
	}
	return mends, nil
}

// mendAttempts is how often a user is folded beside the projector before that
// is done with the partition held up.
const mendAttempts = 3

// errOvertaken is returned where something happened to a user meanwhile.
var errOvertaken = errors.New("something happened to the user meanwhile")

// Mend makes the rows of a user what the log says, and reports whether they were
// anything else. The version then is above all that clients may hold, and the
// update, which is for the bus, makes them read the state again.
//
// The projector of the partition waits for the short transaction that writes.
// For a user to whom something happens all the time it also waits while the log
// is searched, and with it every partition: seconds, where the log is long.
func (v *Verifier) Mend(ctx context.Context, userID string) (update pubsub.Update, mended bool, err error) {
	partition := v.log.PartitionOf(userID)
	for range mendAttempts {
		var log *user
		var at events.Position
		err = atInstant(ctx, v.pool, partition, v.log.Partitions(), func(in *instant) error {
			at = in.position
			if err := in.from(ctx, v.archive); err != nil {
				return err
			}
			log, err = in.refoldUser(ctx, userID)
			return err
		})
		if err == nil {
			update, mended, err = v.mend(ctx, partition, userID, log, at)
		}
		if !errors.Is(err, errOvertaken) {
			break
		}
	}
	if errors.Is(err, errOvertaken) {
		update, mended, err = v.mend(ctx, partition, userID, nil, events.Position{})
	}
	if err != nil {
		return pubsub.Update{}, false, fmt.Errorf("mend user %q: %w", userID, err)
	}
	return update, mended, nil
}

// refoldUser folds the log again for one user.
func (in *instant) refoldUser(ctx context.Context, id string) (*user, error) {
	r, err := in.refoldOf(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	return r.user(id), nil
}

// mend writes the rows of a user as of what the log says up to a position, or,
// where log is nil, of what it finds the log to say. It holds the row of the
// partition's position, so that no batch comes between.
func (v *Verifier) mend(ctx context.Context, partition int, userID string, log *user, at events.Position) (update pubsub.Update, mended bool, err error) {
	err = pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		in := &instant{tx: tx, partition: partition, partitions: v.log.Partitions()}
		if err := in.open(ctx, "FOR UPDATE"); err != nil {
			return err
		}
		if log == nil {
			if err := in.from(ctx, v.archive); err != nil {
				return err
			}
			if log, err = in.refoldUser(ctx, userID); err != nil {
				return err
			}
		} else if happened, err := in.happenedSince(ctx, userID, at); err != nil {
			return err
		} else if happened {
			return errOvertaken
		}
		if mended, err = in.differs(ctx, log); err != nil || !mended {
			return err
		}
		update, err = in.write(ctx, log)
		return err
	})
	return update, mended && err == nil, err
}

// happenedSince reports whether anything may have happened to a user between a
// position and that of in.
func (in *instant) happenedSince(ctx context.Context, userID string, at events.Position) (bool, error) {
	if at == in.position {
		return false, nil
	}
	if at.Before(in.base.position) { // what happened is not in the log any more
		return true, nil
	}
	where, args := named([]string{userID}, 5)
	var happened bool
	err := in.tx.QueryRow(ctx, `SELECT EXISTS (
    SELECT FROM badged.`+events.Topic(in.partition)+`
    WHERE (transaction_id, "offset") > ($1::bigint::text::xid8, $2)
      AND (transaction_id, "offset") <= ($3::bigint::text::xid8, $4)
      AND (`+foreign+` OR `+where+`))`,
		append([]any{at.TransactionID, at.Offset, in.position.TransactionID, in.position.Offset}, args...)...).Scan(&happened)
	if err != nil {
		return false, fmt.Errorf("read partition %d: %w", in.partition, err)
	}
	return happened, nil
}

// differs reports whether the tables say anything else of a user.
func (in *instant) differs(ctx context.Context, log *user) (bool, error) {
	mends, err := in.mends(ctx)
	if err != nil {
		return false, err
	}
	c := comparison{
		in: in, mends: mends,
		options: VerifyOptions{Users: []string{log.id}, Found: func(Difference) {}},
	}
	compared := *log // which comparing uses up
	compared.conversations = maps.Clone(log.conversations)
	err = c.compare(ctx, &refold{
		users: map[string]*user{log.id: &compared},
		wants: func(id string) bool { return id == log.id },
	})
	return c.result.Differences > 0, err
}

// write replaces the rows of a user by what the log says, one version above
// both.
func (in *instant) write(ctx context.Context, log *user) (pubsub.Update, error) {
	live := map[string]int64{} // versions of conversations
	rows, err := in.tx.Query(ctx, fmt.Sprintf(`SELECT conversation_id, version
FROM badged.conversations_p%02d WHERE user_id = $1`, in.partition), log.id)
	if err != nil {
		return pubsub.Update{}, fmt.Errorf("read the conversations: %w", err)
	}
	var id string
	var version int64
	if _, err = pgx.ForEachRow(rows, []any{&id, &version}, func() error {
		live[id] = version
		return nil
	}); err != nil {
		return pubsub.Update{}, fmt.Errorf("read the conversations: %w", err)
	}
	var epoch string
	if err := in.tx.QueryRow(ctx, fmt.Sprintf(`SELECT epoch, coalesce((SELECT version FROM badged.users_p%02d WHERE user_id = $1), 0)
FROM badged.partitions WHERE partition_id = $2`, in.partition), log.id, in.partition).Scan(&epoch, &version); err != nil {
		return pubsub.Update{}, fmt.Errorf("read the user: %w", err)
	}

	m := mend{version: max(version, log.version) + 1}
	m.ahead = m.version - log.version
	log.version, log.stored = m.version, version
	for id := range live {
		if c := log.conversation(id); !c.touched {
			// The log does not know it: it stays, saying nothing, so that
			// clients which know it hear of that.
			c.touched = true
			log.changed = append(log.changed, c)
		}
	}
	for _, c := range log.conversations {
		_, c.stored = live[c.id]
		if c.version > 0 || live[c.id] > 0 {
			c.version = m.version
		}
	}
	var batch pgx.Batch
	newTables(in.partition).queueWrites(&batch, []*user{log})
	// The owner of the partition may remember other rows.
	batch.Queue(`UPDATE badged.partitions SET revision = revision + 1 WHERE partition_id = $1`, in.partition)
	batch.Queue(`INSERT INTO badged.mended_users (partition_id, user_id, version, ahead)
VALUES ($1, $2, $3, $4)
ON CONFLICT (partition_id, user_id) DO UPDATE
SET version = excluded.version, ahead = excluded.ahead, mended_at = excluded.mended_at`, in.partition, log.id, m.version, m.ahead)
	batch.Queue(resetExpirySQL, in.partition)
	if err := in.tx.SendBatch(ctx, &batch).Close(); err != nil {
		return pubsub.Update{}, fmt.Errorf("write: %w", err)
	}
	return pubsub.Update{
		Badge: pubsub.Badge{
			UserID: log.id, Epoch: epoch, Version: m.version,
			Total: log.total, Mentions: log.mentions, Categories: log.categories.byName(),
		},
		Partition: in.partition,
		// Nobody holds this version: everybody reads the state again.
		BaseVersion:   m.version,
		Conversations: []pubsub.Conversation{},
	}, nil
}
