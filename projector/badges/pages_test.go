package badges_test

import (
	"math/rand/v2"
	"testing"

	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// Sets of unread messages can be large, and then lie outside of their rows. A page and
// a snapshot read the sets of the conversations that they return, however many the user
// has: less than a block for each conversation of the user, where each set takes three.
func TestReadTheSetsOfThePageAlone(t *testing.T) {
	const conversations, limit = 4000, 50
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.Append(t, foldtest.Deliver("conversation", 1, ann))
	d.Fold(t)

	var wide badge.RangeSet
	random := rand.New(rand.NewPCG(1, 2)) // so that it cannot be compressed
	for seq := int64(1); len(wide.Ranges) < badge.MaxRanges; seq += 2 + random.Int64N(16000) {
		wide.Add(seq)
	}
	if _, err := d.Pool.Exec(t.Context(), `INSERT INTO badged.conversations
SELECT (jsonb_populate_record(c, jsonb_build_object('version', n, 'conversation_id', 'conversation ' || n, 'unread', $4::int, 'unread_set', $1::bytea))).*
FROM badged.conversations AS c, generate_series(2, $2::bigint) AS n WHERE user_id = $3`, []byte(wide.Encode()), conversations, ann, badge.MaxRanges); err != nil {
		t.Fatal(err)
	}
	page := func(unread bool, cursor *string) func(*badges.Reader) ([]pubsub.Conversation, error) {
		return func(r *badges.Reader) ([]pubsub.Conversation, error) {
			list, next, err := r.Conversations(t.Context(), ann, badges.Filter{Unread: unread}, limit, *cursor)
			*cursor = next
			return list, err
		}
	}
	for _, user := range []string{"ordinary", "former member"} {
		if user == "former member" {
			if _, err := d.Pool.Exec(t.Context(), `UPDATE badged.users SET carried = 0 WHERE user_id = $1`, ann); err != nil {
				t.Fatal(err)
			}
		}
		var all, unread string
		for _, tc := range []struct {
			name string
			want int
			read func(*badges.Reader) ([]pubsub.Conversation, error)
		}{
			{"page", limit, page(false, &all)},
			{"later page", limit, page(false, &all)},
			{"unread page", limit, page(true, &unread)},
			{"later unread page", limit, page(true, &unread)},
			{"snapshot", badges.MaxSnapshot, func(r *badges.Reader) ([]pubsub.Conversation, error) {
				s, err := r.Snapshot(t.Context(), ann)
				return s.Conversations, err
			}},
			{"view", badges.MaxSnapshot, func(r *badges.Reader) ([]pubsub.Conversation, error) {
				s, err := r.View(t.Context(), ann, []string{"chat"})
				return s.Conversations, err
			}},
		} {
			t.Run(user+", "+tc.name, func(t *testing.T) {
				list, blocks := countBlocks(t, d, tc.read)
				if len(list) != tc.want || list[1].FirstUnreadSeq != 1 {
					t.Errorf("%d conversations, want %d; the second is %+v", len(list), tc.want, list[1])
				}
				if blocks == 0 || blocks >= conversations {
					t.Errorf("%d conversations took %d blocks, want fewer than the %d conversations of the user", len(list), blocks, conversations)
				}
			})
		}
	}
}

// countBlocks returns how many blocks of tables and indexes reading conversations takes.
func countBlocks(t *testing.T, d *projectortest.Database, read func(*badges.Reader) ([]pubsub.Conversation, error)) (list []pubsub.Conversation, blocks int64) {
	t.Helper()
	tx, err := d.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // it only reads
	fetched := func() (blocks int64) {
		t.Helper()
		// The statistics of the session, which it reports once in a while.
		if err := tx.QueryRow(t.Context(), `SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0)::bigint FROM pg_class
WHERE relnamespace IN ('badged'::regnamespace, 'pg_toast'::regnamespace)`).Scan(&blocks); err != nil {
			t.Fatal(err)
		}
		return blocks
	}
	before := fetched()
	if list, err = read(badges.NewReader(tx, d.Log)); err != nil {
		t.Fatal(err)
	}
	return list, fetched() - before
}
