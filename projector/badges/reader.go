// Package badges reads the badges and conversations of users from the tables.
//
// The package does not know the loop that folds, HTTP or frames. ADR 85 explains positions and
// waiting for them. ADR 62 explains how rooms are read.
package badges

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/pg/query"
	"github.com/badged/badged/internal/pg/sqlfile"
	"github.com/badged/badged/pubsub"
)

//go:embed badges.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// ErrBadCursor is returned for a cursor that no page of the list has returned.
var ErrBadCursor = errors.New("not a cursor of this list")

// Limits of one read.
const (
	// MaxSnapshot is the maximum number of conversations in a snapshot.
	MaxSnapshot = 500
	// MaxPage is the maximum number of conversations in a page.
	MaxPage = 500
	// MaxBadges is the maximum number of users in one call of Badges, ShownBadges or Versions.
	MaxBadges = 1000
)

// Reader reads badges from the tables only. Everything that one call returns about a user
// comes from one snapshot of the database, so a total always agrees with its parts. Reader is
// safe for concurrent use.
//
// If the log has several databases, reading badges and states fails with [events.ErrNotHeld] for
// users of partitions that this database does not hold. Other reads do not check this: call
// [Reader.Holds] after them.
type Reader struct {
	q       events.Querier
	layouts events.Layouts
	members known
}

// NewReader returns a reader of a database. layouts, usually the database's log, maps users to
// partitions. A pool configured with projector.ConfigurePool is fastest.
func NewReader(q events.Querier, layouts events.Layouts) *Reader {
	return &Reader{q: q, layouts: layouts}
}

func (r *Reader) partitionOf(userID string) int { return r.layouts.Layout().PartitionOf(userID) }

// Badge returns the badge of a user, all zeros for a user without events.
func (r *Reader) Badge(ctx context.Context, userID string) (pubsub.Badge, error) {
	b, err := r.badge(ctx, userID)
	if err != nil {
		return pubsub.Badge{}, fmt.Errorf("read the badge of user %q: %w", userID, err)
	}
	return b, nil
}

func (r *Reader) badge(ctx context.Context, userID string) (pubsub.Badge, error) {
	p := r.partitionOf(userID)
	b := pubsub.Badge{UserID: userID}
	if !r.members.has(userID) {
		var isMember bool
		err := r.q.QueryRow(ctx, firstPaths(statements.Of(p, "read a badge"), noPaths), userID, p).Scan(append(badgeTargets(&b), &isMember)...)
		if err != nil || !isMember {
			return b, notHeld(err)
		}
		r.members.add(userID)
	}
	var m memberships
	err := r.q.QueryRow(ctx, firstPaths(statements.Of(p, "read the badge of a member"), pathsOfSums), userID, p).Scan(append(badgeTargets(&b), m.targets()...)...)
	m.addTo(&b)
	return b, notHeld(err)
}

// notHeld replaces pgx.ErrNoRows by ErrNotHeld. The statements return a row for every user whose
// partition the database holds, so no row means that the database does not hold the partition.
func notHeld(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return events.ErrNotHeld
	}
	return err
}

// Badges returns the badges of up to MaxBadges users with all categories, in the order given.
func (r *Reader) Badges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	return r.someBadges(ctx, userIDs, allPaths, func(*pubsub.Badge) {})
}

// ShownBadges returns the badges of up to MaxBadges users as clients get them: see
// [pubsub.Badge.Shown]. Unlike [Reader.Badges], it does not read all categories of a user who has
// many categories.
func (r *Reader) ShownBadges(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	return r.someBadges(ctx, userIDs, firstPaths, func(b *pubsub.Badge) { *b = b.Shown() })
}

func (r *Reader) someBadges(ctx context.Context, userIDs []string, paths func(sql, extra string) string, cut func(*pubsub.Badge)) ([]pubsub.Badge, error) {
	badges, err := r.badges(ctx, statements.Get("read badges"), userIDs, paths, cut)
	if err != nil {
		return nil, fmt.Errorf("read the badges of %d users: %w", len(userIDs), err)
	}
	return badges, nil
}

// Versions returns the badges of up to MaxBadges users, without categories, in the order
// given. Its callers compare the versions with the states of clients, to find clients that are
// out of date.
func (r *Reader) Versions(ctx context.Context, userIDs []string) ([]pubsub.Badge, error) {
	versions, err := r.badges(ctx, statements.Get("read versions"), userIDs, firstPaths, func(b *pubsub.Badge) { b.Categories, b.Levels = nil, nil })
	if err != nil {
		return nil, fmt.Errorf("read the versions of %d users: %w", len(userIDs), err)
	}
	return versions, nil
}

// noPaths is an empty SQL array, for the parameter extra of firstPaths.
const noPaths = "'{}'::text[]"

// pathsOfSums is an SQL array for the parameter `extra` of firstPaths: the paths of those rooms of
// a member that contribute to the badge.
var pathsOfSums = statements.Get("paths of sums")

// pathsOfRooms returns an SQL array for the parameter `extra` of firstPaths: the paths of all rooms
// of a member.
func pathsOfRooms(partition int) string { return statements.Of(partition, "paths of rooms") }

// firstPaths completes a statement on badges, so that it reads the first MaxCategories+1 paths by
// name and the paths in the SQL array `extra`.
func firstPaths(sql, extra string) string {
	return strings.NewReplacer("ALSO", extra, "FIRSTPATHS", strconv.Itoa(pubsub.MaxCategories+1)).Replace(sql)
}

// allPaths completes a statement on badges so that it reads all paths.
func allPaths(sql, _ string) string {
	return strings.NewReplacer("ALSO", noPaths, "FIRSTPATHS", "ALL").Replace(sql)
}

// badges reads badges with the statement sql, which also returns which users have memberships. For
// users with memberships, it then reads the badges again with the statement for members. For users
// who are known to be members, it runs only the statement for members. The function `paths`
// completes the statements: see firstPaths. cut is called with each badge before the next badge is
// read, and may shorten it.
func (r *Reader) badges(ctx context.Context, sql string, userIDs []string, paths func(sql, extra string) string, cut func(*pubsub.Badge)) ([]pubsub.Badge, error) {
	badges := make([]pubsub.Badge, len(userIDs))
	var others, members []int // indexes in badges
	for i, u := range userIDs {
		if r.members.has(u) {
			members = append(members, i)
		} else {
			others = append(others, i)
		}
	}
	var b pubsub.Badge
	read := func(sql string, places []int, targets []any, scan func(place int)) error {
		if len(places) == 0 {
			return nil
		}
		ids := make([]string, len(places))
		for i, place := range places {
			ids[i] = userIDs[place]
		}
		partitions := r.partitionsOf(ids)
		rows, _ := r.q.Query(ctx, forPartition(sql, partitions), ids, partitions)
		_, err := pgx.ForEachRow(rows, append(badgeTargets(&b), targets...), func() error {
			scan(places[0])
			b.UserID = userIDs[places[0]] // if a row is missing, this is wrong, and the error below discards the result
			cut(&b)
			badges[places[0]], places = b, places[1:]
			return nil
		})
		if err == nil && len(places) > 0 {
			return events.ErrNotHeld
		}
		return err
	}
	var isMember bool
	if err := read(paths(sql, noPaths), others, []any{&isMember}, func(place int) {
		if isMember {
			r.members.add(userIDs[place])
			members = append(members, place)
		}
	}); err != nil {
		return nil, err
	}
	var m memberships
	return badges, read(paths(statements.Get("read the badges of members"), pathsOfSums), members, m.targets(), func(int) { m.addTo(&b) })
}

// forPartition completes a statement with the name of a table. If only one partition is read, this
// is the table of the partition; otherwise it is the partitioned table. A read of the partitioned
// table blocks while any partition is locked.
func forPartition(sql string, partitions []int16) string {
	part := ""
	if len(slices.Compact(slices.Clone(partitions))) == 1 {
		part = fmt.Sprintf("_p%02d", partitions[0])
	}
	return strings.ReplaceAll(sql, "_pNN", part)
}

// memberships has the counts of all memberships of a user, summed by category and by the level
// of the membership.
type memberships struct {
	categories, levels []string
	counts             [][]int64
}

func (m *memberships) targets() []any { return []any{&m.categories, &m.levels, &m.counts} }

func (m *memberships) addTo(b *pubsub.Badge) {
	for i, n := range m.counts {
		count := category.Count{
			Full: n[0], Mentions: n[1], Unseen: n[2], UnseenMentions: n[3], Conversations: n[4], WithMentions: n[5], Beyond: n[6], Marked: n[7],
		}
		level := category.Levels(b.Levels).Of(m.levels[i], m.categories[i])
		if level == category.LevelDirectMentions { // use the counts of mentions by name
			count.Mentions, count.UnseenMentions, count.WithMentions, count.Beyond = n[8], n[9], n[10], n[11]
		}
		add(b, m.categories[i], count.At(level))
	}
}

// add adds to a badge the numbers of conversations of one category.
func add(b *pubsub.Badge, path string, n pubsub.Numbers) {
	if n != (pubsub.Numbers{}) {
		b.Add(n)
		category.AddTo(b.Categories, path, n)
	}
}

// Holds reports whether the database has the partition.
func (r *Reader) Holds(ctx context.Context, partition int) (bool, error) {
	return query.One[bool](ctx, r.q, fmt.Sprintf("read whether partition %d is held", partition), statements.Get("is a partition held"), partition)
}

// Now returns the time by the database's clock.
func (r *Reader) Now(ctx context.Context) (time.Time, error) { return pgsession.Now(ctx, r.q) }

// Snapshot returns the badge of a user, and the conversations that have something unread or a
// level of their own: at most MaxSnapshot, most recently changed first.
func (r *Reader) Snapshot(ctx context.Context, userID string) (pubsub.Snapshot, error) {
	states, err := r.States(ctx, r.partitionOf(userID), []pubsub.Held{{UserID: userID}})
	if err != nil {
		return pubsub.Snapshot{}, err
	}
	return states[0], nil
}

// States returns what clients must receive to be up to date. `held` has the users of the clients,
// and the epoch and the version that each client has. All users must belong to the partition. The
// results are in the order of `held`, and each comes from one snapshot of the database.
//
// A result has the conversations that changed since the version in `held`, even if they have
// nothing to show now. If anything has changed, the result has all memberships. If the client's
// epoch differs, or its version is greater than the version in the tables, the result is the whole
// state, as from Snapshot. If more than MaxSnapshot conversations have changed, More is set and the
// result is incomplete: call again without an epoch.
func (r *Reader) States(ctx context.Context, partition int, held []pubsub.Held) ([]pubsub.Snapshot, error) {
	states := make([]pubsub.Snapshot, len(held))
	members, places, err := r.ordinaryStates(ctx, partition, held, states)
	if err == nil && len(members) > 0 {
		err = r.memberStates(ctx, partition, members, places, states)
	}
	if err != nil {
		return nil, fmt.Errorf("read the states of %d users of partition %d: %w", len(held), partition, err)
	}
	for i := range states {
		if s := &states[i]; len(s.Conversations) > MaxSnapshot {
			s.Conversations, s.More = s.Conversations[:MaxSnapshot], true
		}
	}
	return states, nil
}

// heldArguments returns the first three arguments of the statements on states: user ids,
// epochs and versions.
func heldArguments(held []pubsub.Held) []any {
	userIDs, epochs, versions := make([]string, len(held)), make([]string, len(held)), make([]int64, len(held))
	for i, h := range held {
		userIDs[i], epochs[i], versions[i] = h.UserID, h.Epoch, h.Version
	}
	return []any{userIDs, epochs, versions}
}

// statesSQL sets the limit of conversations in a statement on states: MaxSnapshot and one
// more, which shows that there are more.
func statesSQL(sql string) string {
	return strings.ReplaceAll(sql, "MOST", strconv.Itoa(MaxSnapshot+1))
}

// ordinaryStates reads the states of users without memberships into `states`. It returns the users
// with memberships, and their indexes in `held`.
func (r *Reader) ordinaryStates(ctx context.Context, partition int, held []pubsub.Held, states []pubsub.Snapshot) (members []pubsub.Held, places []int, err error) {
	for i, h := range held {
		states[i] = pubsub.Snapshot{Badge: pubsub.Badge{UserID: h.UserID}, Conversations: []pubsub.Conversation{}}
	}
	var (
		ord             int
		isMember, whole bool
		found           bool
		carried         int64
		b               pubsub.Badge
		c               conversationRow
	)
	rows, _ := r.q.Query(ctx, firstPaths(statesSQL(statements.Of(partition, "read states")), noPaths), append(heldArguments(held), partition)...)
	_, err = pgx.ForEachRow(rows, slices.Concat([]any{&ord, &isMember, &whole, &carried}, badgeTargets(&b), c.targets()), func() error {
		s := &states[ord-1]
		found = true
		switch {
		case isMember:
			members, places = append(members, held[ord-1]), append(places, ord-1)
		case c.id != nil:
			s.Conversations = append(s.Conversations, c.conversation(carried))
		default:
			b.UserID = s.UserID
			s.Badge, s.Whole = b, whole
		}
		return nil
	})
	if err == nil && !found && len(held) > 0 {
		err = events.ErrNotHeld
	}
	return members, places, err
}

// Conversation returns a conversation of a user, or the zero value if it does not exist.
func (r *Reader) Conversation(ctx context.Context, userID, conversationID string) (pubsub.Conversation, error) {
	if events.CheckID(conversationID) != "" {
		return pubsub.Conversation{}, nil // no event can have this id
	}
	p := r.partitionOf(userID)
	sql, ofMember := statements.Of(p, "read a conversation"), firstPaths(statements.Of(p, "read a conversation of a member"), noPaths)
	list, err := r.conversations(ctx, sql, ofMember, userID, p, conversationID)
	if err != nil {
		return pubsub.Conversation{}, fmt.Errorf("read conversation %q of user %q: %w", conversationID, userID, err)
	}
	if len(list) == 0 {
		return pubsub.Conversation{}, nil
	}
	return list[0].Conversation, nil
}

// IsMember reports whether a conversation is a room of which a user is a member.
func (r *Reader) IsMember(ctx context.Context, userID, conversationID string) (bool, error) {
	what := fmt.Sprintf("read whether %q is a room of user %q", conversationID, userID)
	return query.One[bool](ctx, r.q, what, statements.Of(r.partitionOf(userID), "is a member of a room"), userID, conversationID)
}

// conversations reads conversations of a user, most recently changed first. It uses the
// statement sql for a user without memberships, and the statement ofMember for a user with
// memberships.
func (r *Reader) conversations(ctx context.Context, sql, ofMember, userID string, args ...any) (list []listed, err error) {
	args = append([]any{userID}, args...)
	isMember := r.members.has(userID)
	if !isMember {
		var carried int64
		var c conversationRow
		rows, _ := r.q.Query(ctx, sql, args...)
		if _, err := pgx.ForEachRow(rows, append([]any{&isMember, &carried}, c.targets()...), func() error {
			if c.id != nil {
				list = append(list, listed{c.conversation(carried), *c.version})
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if isMember {
		r.members.add(userID)
		rows, _ := r.q.Query(ctx, ofMember, args...)
		all, err := scanMembers(rows, 1)
		if err != nil {
			return nil, err
		}
		list, _ = all.list(&all.users[0])
	}
	sortByChange(list)
	return list, nil
}

// ErrLost is returned for a position that the log does not have, or may no longer have: Postgres
// has failed over or was restored, and may have lost the last commits. Of the transactions before
// the failover or restore, only folded ones are known to have survived.
var ErrLost = errors.New("the log may have lost what was published at this position")

// Head returns a position to pass to Folded. All transactions that were committed before the call,
// with events of any user, are at or before this position.
func (r *Reader) Head(ctx context.Context, _ string) (position int64, err error) {
	var transactionID, timeline int64
	if err := r.q.QueryRow(ctx, statements.Get("read the head")).Scan(&transactionID, &timeline); err != nil {
		return 0, fmt.Errorf("read the head of the log: %w", err)
	}
	return int64(eventlog.NewToken(timeline, transactionID)), nil
}

// Folded reports whether the badges of the users include all events that were appended for
// them up to a position, an [eventlog.Token]. It returns ErrLost if the events were lost, or
// if it can never be decided whether they were.
func (r *Reader) Folded(ctx context.Context, userIDs []string, position int64) (bool, error) {
	token := eventlog.Token(position)
	var partitions []int
	for _, p := range r.partitionsOf(userIDs) {
		partitions = append(partitions, int(p))
	}
	slices.Sort(partitions)
	partitions = slices.Compact(partitions)
	cursors, err := logread.LoadAll(ctx, r.q, partitions)
	if err != nil {
		return false, fmt.Errorf("read the positions of %d users: %w", len(userIDs), err)
	}
	args := []any{token.TransactionID()}
	var behind []string
	for i, p := range partitions {
		const exists = `EXISTS (SELECT FROM badged.%s WHERE %s AND transaction_id <= $1::bigint::text::xid8)`
		behind = append(behind, fmt.Sprintf(exists, events.Topic(p), logread.After(len(args)+1)))
		if len(cursors[i].Pending) == 0 {
			args = append(args, cursors[i].TransactionID, cursors[i].Offset)
			continue
		}
		behind = append(behind, fmt.Sprintf(exists, events.Topic(p), logread.Late(len(args)+1)))
		args = append(args, cursors[i].Args()...)
	}
	var folded, exists bool
	var timeline int64
	err = r.q.QueryRow(ctx, `SELECT NOT (`+strings.Join(behind, " OR ")+`), pg_snapshot_xmax(pg_current_snapshot()) > $1::bigint::text::xid8, `+
		statements.Get("timeline"), args...).Scan(&folded, &exists, &timeline)
	if err != nil {
		return false, fmt.Errorf("read the positions of %d users: %w", len(userIDs), err)
	}
	if !exists {
		return false, ErrLost
	}
	survived, err := r.survived(ctx, token, timeline, partitions)
	return survived && folded, err
}

// Survived reports whether the log is known to have all events that were appended in this
// database up to a position, an [eventlog.Token]: a failover or restore may have lost the last
// commits. False means that this is not decided yet. Survived returns ErrLost if the events were
// lost, or if it can never be decided whether they were. Unlike Folded, it does not check whether
// the events are folded: after a move, another database may have folded them.
func (r *Reader) Survived(ctx context.Context, position int64) (bool, error) {
	token := eventlog.Token(position)
	var exists bool
	var timeline int64
	err := r.q.QueryRow(ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot()) > $1::bigint::text::xid8, `+statements.Get("timeline"), token.TransactionID()).Scan(&exists, &timeline)
	if err != nil {
		return false, fmt.Errorf("read the timeline: %w", err)
	}
	if !exists {
		return false, ErrLost
	}
	return r.survived(ctx, token, timeline, r.layouts.Layout().Living())
}

// survived reports whether a transaction is known to be in the log. That is true if the transaction
// is of the present timeline, or if its timeline has ended and an owner of one of the partitions
// has then recorded the transaction as folded. survived returns ErrLost if every partition has had
// an owner since then and no owner has recorded the transaction, and also if the transaction is of
// a later timeline than the present one.
func (r *Reader) survived(ctx context.Context, token eventlog.Token, timeline int64, partitions []int) (bool, error) {
	switch t := token.Timeline(); {
	case t > timeline:
		return false, ErrLost
	case t == timeline || t == 0:
		return true, nil
	}
	var survived, settled bool
	err := r.q.QueryRow(ctx, statements.Get("look up an ended timeline"), token.Timeline(), token.TransactionID(), partitions).Scan(&survived, &settled)
	switch {
	case err != nil:
		return false, fmt.Errorf("look up timeline %d: %w", token.Timeline(), err)
	case !survived && settled:
		return false, ErrLost
	}
	return survived, nil
}

func (r *Reader) partitionsOf(userIDs []string) []int16 {
	partitions := make([]int16, len(userIDs))
	layout := r.layouts.Layout()
	for i, id := range userIDs {
		partitions[i] = int16(layout.PartitionOf(id)) //nolint:gosec // below eventlog.PartitionNumbers
	}
	return partitions
}
