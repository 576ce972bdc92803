// Package merging moves the unread messages of a guest to the account with which the guest has
// signed in.
//
// It does not know the fold: like a backend, it publishes events. ADR 76 has the reasons.
package merging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/pubsub"
)

// Source is the CloudEvents source of the events that a merge publishes.
const Source = "badged/merge"

// MaxMessages is the maximum number of unread messages that are moved per conversation: each
// message needs an event. If a conversation has more unread messages, only the newest are moved.
const MaxMessages = 10_000

// Config configures a merge. Pool, Log, Guest and Account are required.
type Config struct {
	// Pool and Log are the database of the guest.
	Pool *pgxpool.Pool
	Log  *events.Log
	// IntoPool and IntoLog are the database of the account. Default: the database of the
	// guest.
	IntoPool *pgxpool.Pool
	IntoLog  *events.Log
	// Guest and Account are valid ids. The users need not exist.
	Guest, Account string
}

// Merged counts what was published.
type Merged struct {
	Conversations int   `json:"conversations" doc:"The number of conversations that were moved."`
	Messages      int64 `json:"messages" doc:"The number of messages that were moved: the unread messages of these conversations, and messages that the guest had marked unread."`
	// Left counts unread messages that were not moved: the oldest messages of a conversation
	// that has more than MaxMessages, and messages of which badged stores only the number.
	Left   int64 `json:"left" doc:"The number of unread messages that were not moved. badged moves only the newest 10,000 of a conversation, and no messages of which it stores only the number."`
	Rooms  int   `json:"rooms" doc:"The number of rooms of which the guest is a member. Rooms are not moved: publish room.joined for the account, with up_to_seq."`
	Events int   `json:"events" doc:"The number of events that were published."`
}

// ErrSame is returned if a user is merged into itself.
var ErrSame = errors.New("the guest and the account are the same user")

// Merge publishes events that move the conversations of a guest, except rooms, to an account. In
// each conversation, the account gets the higher of both read positions. A message above this
// position becomes unread if it is unread for either user. The guest leaves the conversation in the
// same transaction. Until the events are folded, a message may count for both users or for neither.
// If the account is on another database, the guest leaves in a second transaction; if that fails,
// messages count for both users until the merge is repeated. The account's level (what a
// conversation adds to the total) does not change. If the account did not have the conversation, it
// gets the guest's level.
//
// Merge reads only folded events. If the guest gets messages later, another merge moves them.
// The ids of most events are derived from their content, so a merge can be repeated, also
// after an interruption.
func Merge(ctx context.Context, cfg Config) (r Merged, err error) {
	if cfg.Guest == cfg.Account {
		return r, ErrSame
	}
	if cfg.IntoPool == nil || cfg.IntoPool == cfg.Pool {
		cfg.IntoPool, cfg.IntoLog = cfg.Pool, cfg.Log
	}
	guest, err := load(ctx, cfg.Pool, cfg.Log, cfg.Guest)
	if err != nil {
		return r, err
	}
	account, err := load(ctx, cfg.IntoPool, cfg.IntoLog, cfg.Account)
	if err != nil {
		return r, err
	}
	if r.Events, err = mergeLevels(ctx, cfg); err != nil {
		return r, err
	}
	for _, id := range slices.Sorted(maps.Keys(guest.Conversations)) {
		from := guest.Conversations[id]
		if from.Member() {
			r.Rooms++
			continue
		}
		if from.Left() {
			continue
		}
		_, known := account.Conversations[id]
		m := move{from: from, to: account.Conversation(id), known: known, result: &r}
		evs := m.events(cfg.Account)
		leave := events.Event{
			ID: uuid.NewString(), Source: Source, Type: events.ConversationLeft,
			Data: events.Data{ConversationID: id, UserIDs: []string{cfg.Guest}},
		}
		if cfg.IntoPool == cfg.Pool {
			_, err = cfg.Log.Append(ctx, append(evs, leave)...)
		} else if _, err = cfg.IntoLog.Append(ctx, evs...); err == nil {
			_, err = cfg.Log.Append(ctx, leave)
		}
		if err != nil {
			return r, fmt.Errorf("move conversation %q: %w", id, err)
		}
		r.Conversations++
		r.Events += len(evs) + 1
	}
	return r, nil
}

// mergeLevels sets the guest's levels of categories for the account, except for categories for
// which the account has a level. It returns the number of levels that it has set.
func mergeLevels(ctx context.Context, cfg Config) (n int, err error) {
	levels := func(pool *pgxpool.Pool, log *events.Log, userID string) (map[string]events.Level, error) {
		const sql = `SELECT category, level::text FROM badged.levels WHERE partition_id = $1 AND user_id = $2`
		found := map[string]events.Level{}
		var path, level string
		return found, query.Each(ctx, pool, fmt.Sprintf("read the levels of user %q", userID), sql, []any{log.PartitionOf(userID), userID}, []any{&path, &level}, func() error {
			found[path] = events.Level(level)
			return nil
		})
	}
	of, err := levels(cfg.Pool, cfg.Log, cfg.Guest)
	if err != nil || len(of) == 0 {
		return 0, err
	}
	has, err := levels(cfg.IntoPool, cfg.IntoLog, cfg.Account)
	if err != nil {
		return 0, err
	}
	var evs []events.Event
	for _, path := range slices.Sorted(maps.Keys(of)) {
		if _, ok := has[path]; !ok {
			evs = append(evs, events.Event{
				ID: uuid.NewString(), Source: Source, Type: events.CategoryLevelSet,
				Data: events.Data{UserIDs: []string{cfg.Account}, Category: path, Level: of[path]},
			})
		}
	}
	if len(evs) == 0 {
		return 0, nil
	}
	if _, err := cfg.IntoLog.Append(ctx, evs...); err != nil {
		return 0, fmt.Errorf("set the levels of %d categories: %w", len(evs), err)
	}
	return len(evs), nil
}

// load reads the conversations of a user.
func load(ctx context.Context, pool *pgxpool.Pool, log *events.Log, userID string) (*badge.User, error) {
	u := badge.NewUser(userID)
	tables := store.NewTables(log.PartitionOf(userID))
	rows, _ := pool.Query(ctx, tables.Conversations.ReadUsers, []string{userID})
	if err := store.ScanConversations(rows, map[string]*badge.User{u.ID: u}); err != nil {
		return nil, fmt.Errorf("read the conversations of user %q: %w", userID, err)
	}
	return u, nil
}

// move is the move of a conversation from a guest to an account.
type move struct {
	from, to *badge.Conversation
	// known is true if the account has had the conversation before.
	known  bool
	result *Merged
}

// events returns the events that add the guest's state of a conversation to the account's state.
func (m *move) events(account string) (evs []events.Event) {
	add := func(typ events.Type, d events.Data) {
		d.ConversationID, d.UserIDs = m.from.ID, []string{account}
		e := events.Event{Source: Source, Type: typ, Data: d}
		e.ID = m.id(&e)
		evs = append(evs, e)
	}
	if after := m.from.LevelAfter; !m.known && after != "" && after != events.LevelDefault {
		add(events.ConversationLevelSet, events.Data{Level: after})
	}
	if until := m.from.LevelUntil; !m.known && (until != 0 || m.from.Level != events.LevelDefault) {
		add(events.ConversationLevelSet, events.Data{Level: m.from.Level, Until: pubsub.TimeOf(until)})
	}
	// Ignore a read position or seen position of the guest that is not above LeftSeq.
	// If an earlier merge made the guest leave, the leave has raised these positions, although the
	// guest did not read the messages.
	read := m.to.ReadPosition()
	if position := m.from.ReadPosition(); position > max(read, m.from.LeftSeq) {
		read = position
		add(events.ConversationRead, events.Data{UpToSeq: read})
	}
	if seen := m.from.SeenPosition(); seen > max(read, m.to.SeenPosition(), m.from.LeftSeq) {
		add(events.ConversationSeen, events.Data{UpToSeq: seen})
	}
	if m.to.Member() { // the room already has the messages
		if m.from.Member() && m.from.Membership.Reached >= read {
			add(events.ConversationMarkedUnread, events.Data{FromSeq: m.from.ReadSeq + 1})
		}
		return evs
	}
	for _, seq := range m.unread() {
		d := events.Data{Seq: seq, Category: m.from.Category}
		if m.from.Mentions.Contains(seq) {
			d.MentionedUserIDs = []string{account}
		}
		add(events.MessageDelivered, d)
		m.result.Messages++
	}
	if again := m.marked(); len(again) > 0 && m.from.ReadSeq >= m.to.ReadSeq {
		// Only delivered messages up to the read position can be marked. So if the last marked
		// message is above the account's last message, deliver it to the account. Deliver also the
		// marked messages above the read position: they are unread without a mark.
		for i, seq := range again {
			if seq > read || i == len(again)-1 && seq > m.to.LastSeq {
				add(events.MessageDelivered, events.Data{Seq: seq, Category: m.from.Category})
			}
		}
		add(events.ConversationMarkedUnread, events.Data{Seqs: again})
		m.result.Messages += int64(len(again))
	}
	if m.from.Marked && !m.to.Marked && m.from.ReadSeq >= m.to.ReadSeq {
		add(events.ConversationMarkedUnread, events.Data{})
	}
	return evs
}

// unread returns the messages to deliver to the account: the guest's unread messages above the
// account's read position, except messages that are unread for the account already and do not
// mention the guest. It adds to Left the messages that exceed MaxMessages, and the messages of
// which badged stores only the number.
func (m *move) unread() (seqs []int64) {
	for _, r := range m.from.Unread.Ranges {
		if r.Hi <= m.to.ReadSeq {
			continue
		}
		lowest := max(r.Lo, m.to.ReadSeq+1)
		first := max(lowest, r.Hi-MaxMessages+1)
		m.result.Left += max(0, first-lowest)
		for seq := range badge.Seqs(first, r.Hi) {
			if !m.to.Unread.Contains(seq) || m.from.Mentions.Contains(seq) {
				seqs = append(seqs, seq)
			}
		}
	}
	surplus := max(0, len(seqs)-MaxMessages)
	m.result.Left += int64(surplus) + m.from.Unread.Counted()
	return seqs[surplus:]
}

// marked returns the messages that the guest has marked unread: only the newest events.MaxSeqs,
// since one event must list them all. It adds the number of older marked messages to Left.
func (m *move) marked() (seqs []int64) {
	for _, r := range m.from.MarkedUnread.Ranges {
		seqs = slices.AppendSeq(seqs, badge.Seqs(r.Lo, r.Hi))
	}
	surplus := max(0, len(seqs)-events.MaxSeqs)
	m.result.Left += int64(surplus)
	return seqs[surplus:]
}

// id derives the id of an event from its content. A level or mark may be set to the same value
// again later, in which case the event must have another id. So the id of an event that sets a
// level or mark also depends on the versions of both conversations.
func (m *move) id(e *events.Event) string {
	d := &e.Data
	text := fmt.Sprintf("%s\x00%s\x00%d\x00%d\x00%s\x00%t\x00%s\x00%d\x00%v", e.Type, d.ConversationID, d.Seq, d.UpToSeq, d.Category, d.MentionedUserIDs != nil, d.Level, d.Until.UnixMicro(), d.Seqs)
	if d.FromSeq > 0 {
		text += fmt.Sprintf("\x00%d", d.FromSeq)
	}
	if e.Type == events.ConversationLevelSet || e.Type == events.ConversationMarkedUnread {
		text += fmt.Sprintf("\x00%d\x00%d", m.from.Version, m.to.Version)
	}
	sum := sha256.Sum256([]byte(text))
	return string(e.Type) + "-" + hex.EncodeToString(sum[:16])
}
