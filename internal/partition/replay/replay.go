package replay

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/logread"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/pg/sqlfile"
)

//go:embed replay.sql
var statementsText string

var statements = sqlfile.Parse(statementsText)

// visit processes a record of the log and the item that was decoded from it. If the record must not
// be folded, `dead` is the reason, and the item is empty.
type visit func(r *events.Record, item store.Item, dead error) error

// Limits of one read of the log.
const (
	replayPage      = 5000
	replayPageBytes = 8 << 20
)

// visitAll calls v with every record up to the position of snapshot, in order. It starts at the
// baseline, or at the start of the archive if there is one. If `keys` is not nil, it must be the
// result of newKeys: visitAll adds the event keys of the baseline to it, or the generations of
// event keys in the archive. After each page, visitAll calls `done` with the number of the page's
// records. While v gets the records of a page, other goroutines read and decode later pages, so v
// and `done` must not use the transaction.
func (snapshot *Snapshot) visitAll(ctx context.Context, keys *store.DedupReplay, v visit, done func(records int)) error {
	if err := snapshot.restoreKeys(ctx, keys, nil); err != nil {
		return err
	}
	if err := snapshot.ScanTables(ctx, false); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	pages, decoded := make(chan page), make(chan page)
	g.Go(func() error {
		defer close(pages)
		if err := snapshot.archivedPages(ctx, pages); err != nil {
			return err
		}
		return snapshot.pages(ctx, pages)
	})
	g.Go(func() error {
		defer close(decoded)
		for p := range pages {
			p.decoded = make([]decodedRecord, len(p.records))
			for i := range p.records {
				p.decoded[i].item, p.decoded[i].dead = snapshot.Item(&p.records[i], &p.letters)
			}
			if err := send(ctx, decoded, p); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		for p := range decoded {
			if keys != nil {
				if p.begins {
					keys.Begin()
				}
				keys.Extend(p.generations)
			}
			for i := range p.records {
				if err := v(&p.records[i], p.decoded[i].item, p.decoded[i].dead); err != nil {
					return err
				}
			}
			done(len(p.records))
		}
		return nil
	})
	return g.Wait()
}

// page has the records of one read of the log or of an archive. Before the records of each archived
// file, a page without records has the generations of event keys that begin in the file.
type page struct {
	records []events.Record
	// letters has the dead letters among the events of the records.
	letters store.Letters
	// decoded has the decoded form of each record, after the page was decoded.
	decoded     []decodedRecord
	generations []store.Generation
	// begins is true for the first page of an archived file, and for the first page of the log
	// after the files: all generations of earlier pages have begun when this page is reached.
	// Positions do not always show which generations have begun. If the partition was moved, an
	// earlier file may have greater positions, since positions of different databases cannot be
	// compared.
	begins bool
}

// decodedRecord is the item of a record, or the reason why the record is not folded.
type decodedRecord struct {
	item store.Item
	dead error
}

// send sends a page, unless ctx is done before.
func send(ctx context.Context, to chan<- page, p page) error {
	select {
	case to <- p:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pages sends the records of the log to a channel in order, from the baseline up to the position of
// snapshot.
func (snapshot *Snapshot) pages(ctx context.Context, to chan<- page) error {
	position, size := snapshot.Baseline.Position, logread.Size{Events: replayPage, Bytes: replayPageBytes}
	for position.Before(snapshot.Position) {
		records, err := logread.Folded(ctx, snapshot.Tx, snapshot.Partition, position, snapshot.Cursor, &size)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			return nil
		}
		position = records[len(records)-1].Position
		letters, err := snapshot.LettersOf(ctx, records)
		if err != nil {
			return err
		}
		if err := send(ctx, to, page{records: records, letters: letters}); err != nil {
			return err
		}
	}
	return nil
}

// maxSought is the maximum number of users for which the log is searched by SQL conditions. For
// more users, reading the whole log is faster.
const maxSought = 16

// eachOf calls v, in order, with the records that are necessary to replay at most maxSought users
// from the baseline up to the position of snapshot. These are the records that name one of the
// users or one of their rooms, and perhaps dead letters. eachOf removes all other rooms from r. It
// adds to r.Keys the baseline's event keys that are needed for these records.
//
// In ranges of the log that have an index, eachOf finds the records by the index. Postgres scans
// the newest ranges, which have no index yet, once, or three times if the users are members of
// rooms. An archive cannot be searched: if the snapshot has an archive, eachOf calls v with every
// record.
func (snapshot *Snapshot) eachOf(ctx context.Context, users []string, r *Replay, v visit) error {
	if snapshot.archive != nil {
		return snapshot.visitAll(ctx, r.Keys, v, func(int) {})
	}
	if err := snapshot.ScanTables(ctx, true); err != nil {
		return err
	}
	sought, err := snapshot.soughtFor(ctx, users)
	if err != nil {
		return err
	}
	for id := range r.Rooms { // the state of other rooms would become wrong, since most of their events are not read
		if _, ok := sought.rooms[id]; !ok {
			delete(r.Rooms, id)
			delete(r.others, id)
		}
	}
	found, err := snapshot.search(ctx, snapshot.Baseline.Position, sought)
	if err != nil || len(found.ids) == 0 {
		return err
	}
	if sought.keys = found.memberships; len(sought.keys) > 0 {
		if found, err = snapshot.search(ctx, snapshot.Baseline.Position, sought); err != nil {
			return err
		}
	}
	if err := snapshot.restoreKeys(ctx, r.Keys, keyList(found.keys)); err != nil {
		return err
	}
	return snapshot.visitFound(ctx, found, func(rec *events.Record, item store.Item, dead error) error {
		if dead == nil && !sought.has(&item) {
			if sought.shares(item.Key) {
				r.Keys.First(&item, rec.Position)
			}
			return nil
		}
		item.Erased = sought.members(item.Erased)
		return v(rec, item, dead)
	})
}

// visitFound reads the rows that a search has found, and calls v with their records, in order.
func (snapshot *Snapshot) visitFound(ctx context.Context, found *found, v visit) error {
	letters, err := store.LoadLettersOf(ctx, snapshot.Tx, snapshot.Partition, found.ids, found.offsets)
	if err != nil {
		return err
	}
	sql := rowsSQL(statements.Of(snapshot.Partition, "read some rows"))
	rows, _ := snapshot.Tx.Query(ctx, sql, append(snapshot.folded(snapshot.Baseline.Position), found.ids, found.offsets)...)
	if err := logread.Scan(rows, func(records []events.Record) error {
		for i := range records {
			item, dead := snapshot.Item(&records[i], &letters)
			if err := v(&records[i], item, dead); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read partition %d: %w", snapshot.Partition, err)
	}
	return nil
}

// rowsSQL replaces COLUMNS by the columns of a row of the log.
func rowsSQL(sql string) string { return strings.ReplaceAll(sql, "COLUMNS", logread.Columns) }

// found is the result of a search of the log: the places of the found rows, and the event keys of
// the sought events in these rows.
type found struct {
	ids, offsets []int64
	keys         map[uuid.UUID]struct{}
	// memberships maps the event keys of the found joins and leaves to the ids of these events.
	memberships map[uuid.UUID]string
}

func (f *found) add(position events.Position) {
	if n := len(f.ids); n > 0 && f.ids[n-1] == position.TransactionID && f.offsets[n-1] == position.Offset {
		return
	}
	f.ids, f.offsets = append(f.ids, position.TransactionID), append(f.offsets, position.Offset)
}

// keyList returns the keys of a map as an array argument of a statement.
func keyList[V any](keys map[uuid.UUID]V) [][16]byte {
	list := make([][16]byte, 0, len(keys))
	for key := range keys {
		list = append(list, key)
	}
	return list
}

// searchSQL returns the statement that search runs, and the arguments of the statement.
func (snapshot *Snapshot) searchSQL(after events.Position, wanted *sought) (sql string, args []any) {
	text, texts := wanted.text(7)
	sql = rowsSQL(strings.ReplaceAll(statements.Of(snapshot.Partition, "search the log"), "TEXT", text))
	return sql, slices.Concat(snapshot.folded(after), []any{wanted.namesToFind()}, texts)
}

// search finds the rows with sought events that come after the position `after` and not after the
// position of snapshot. It does not know which events are dead letters, so it may also find events
// that were not folded.
func (snapshot *Snapshot) search(ctx context.Context, after events.Position, wanted *sought) (*found, error) {
	sql, args := snapshot.searchSQL(after, wanted)
	f := &found{keys: map[uuid.UUID]struct{}{}, memberships: map[uuid.UUID]string{}}
	rows, _ := snapshot.Tx.Query(ctx, sql, args...)
	if err := logread.Scan(rows, func(records []events.Record) error {
		for i := range records {
			r := &records[i]
			if r.Payload == nil { // a single event, whose UUID is the event key: the query omits most such payloads
				f.keys[r.UUID] = struct{}{}
				f.add(r.Position)
				continue
			}
			if !wanted.mayBeIn(r.Payload) && !bytes.ContainsRune(r.Payload, '\\') && len(wanted.keys) == 0 {
				continue
			}
			item, dead := store.NewItem(r, snapshot.Partition, snapshot.Partitions)
			if dead == nil && (wanted.has(&item) || wanted.shares(item.Key)) {
				f.keys[item.Key] = struct{}{}
				f.add(r.Position)
				if movesMembers(item.Event.Type) {
					f.memberships[item.Key] = item.Event.ID
				}
			} else if dead != nil && wanted.mayBeIn(r.Payload) {
				f.add(r.Position)
			}
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("search partition %d: %w", snapshot.Partition, err)
	}
	return f, nil
}

// quoted returns an id in the quotes that the log stores.
func quoted(id string) []byte {
	b, _ := jsontext.AppendQuote(nil, id) // ignore the error: an id that cannot be quoted is not in the log
	return b
}

// Replay is the state of some users according to the log.
type Replay struct {
	Users map[string]*badge.User
	// Rooms are the rooms of the users, and perhaps other rooms. Each room has all its closed
	// chunks (older messages), and the marks (see Mark) of the users.
	Rooms map[string]*badge.Room
	// Wants reports whether a user is to be replayed.
	Wants func(user string) bool
	// Keys has the event keys by which repeated events are detected. It is nil if repeats lists
	// the repeated events.
	Keys *store.DedupReplay
	// repeats maps the place of each record with a repeated event to the users who have had an
	// earlier event with the same key.
	repeats map[events.Place]store.UserSet
	// others maps each room to its members who are not replayed. The room counts these members
	// too.
	others map[string]map[string]struct{}
}

// newReplay returns a Replay without users. If repeats is nil, event keys detect repeated events.
func (snapshot *Snapshot) newReplay(wants func(user string) bool, repeats map[events.Place]store.UserSet) *Replay {
	r := &Replay{
		Users: map[string]*badge.User{}, Rooms: map[string]*badge.Room{}, Wants: wants, repeats: repeats,
		others: map[string]map[string]struct{}{},
	}
	if repeats == nil {
		r.Keys = snapshot.newKeys()
	}
	return r
}

// fold folds the item of the record at `place`, unless the event is a repetition. It returns the
// number of replayed users in the event, not counting users for which the fold refuses the event.
func (r *Replay) fold(place events.Place, item *store.Item) int {
	if r.Keys == nil && !item.RemoveUsers(r.repeats[place]) || r.Keys != nil && !r.Keys.Fresh(item, place.Position) {
		return 0
	}
	state := &badge.State{Users: r.Users, Rooms: r.Rooms}
	state.FoldErased(item.Erased)
	d := &item.Event.Data
	all := d.UserIDs
	d.UserIDs = slices.DeleteFunc(slices.Clone(all), func(id string) bool { return !r.Wants(id) })
	for _, id := range d.UserIDs {
		if r.Users[id] == nil {
			u := badge.NewUser(id)
			r.Users[u.ID] = u
		}
	}
	// Determine again for which users the event is refused: for a dead letter in an archive, only
	// the place is known.
	refused := state.Refused(&item.Event)
	wanted := slices.DeleteFunc(d.UserIDs, func(id string) bool { return slices.Contains(refused, id) })
	d.UserIDs = all
	if len(refused) > 0 {
		slices.Sort(refused)
		item.Drop(refused)
	}
	if r.Keys != nil {
		r.Keys.Remember(item)
	}
	r.followOthers(&item.Event)
	d.UserIDs = wanted
	if len(wanted) == 0 && !item.ToRoom() {
		return 0
	}
	state.Fold(&item.Event)
	r.forgetMarks(item)
	return len(wanted)
}

// user returns the state of a user. If r does not have the user, it returns an empty state, which
// it does not add to r.
func (r *Replay) user(id string) *badge.User {
	if u, ok := r.Users[id]; ok {
		return u
	}
	return badge.NewUser(id)
}

// replayOf replays at most maxSought users. It searches the log for their events.
func (snapshot *Snapshot) replayOf(ctx context.Context, users []string) (*Replay, error) {
	r := snapshot.newReplay(func(id string) bool { return slices.Contains(users, id) }, nil)
	if err := snapshot.restoreUsers(ctx, r, users, func() {}); err != nil {
		return nil, err
	}
	err := snapshot.eachOf(ctx, users, r, func(rec *events.Record, item store.Item, dead error) error {
		if dead == nil {
			r.fold(rec.Place, &item)
		}
		return nil
	})
	return r, err
}

// Rough memory use, in bytes.
const (
	keyWeight = 64
	// foldWeight is the most that one event adds to the memory of one user.
	foldWeight = badge.UserWeight + badge.ConversationWeight + 3*badge.RangeWeight
)

// repeats finds the repeated events of the log. It maps the place of each record with a repeated
// event to the users who have had an earlier event with the same key. `weight` is the size of all
// event keys in bytes, and `budget` is the approximate limit in bytes for event keys in memory. So
// repeats reads the log weight/budget+1 times, each time for another part of the keys.
func (snapshot *Snapshot) repeats(ctx context.Context, weight, budget int64, done func(records int)) (map[events.Place]store.UserSet, error) {
	repeats := map[events.Place]store.UserSet{}
	passes := uint64(weight/budget) + 1 //nolint:gosec // neither is negative
	for pass := range passes {
		keys := snapshot.newKeys()
		// Keys are hashes, so the values of their last eight bytes are evenly distributed.
		keys.Wants = func(key uuid.UUID) bool { return binary.BigEndian.Uint64(key[8:])%passes == pass }
		err := snapshot.visitAll(ctx, keys, func(r *events.Record, item store.Item, dead error) error {
			if dead != nil || !keys.Wants(item.Key) {
				return nil
			}
			if had := keys.Earlier(item.Key, r.Position); had != "" {
				repeats[r.Place] = had
			}
			keys.First(&item, r.Position)
			return nil
		}, done)
		if err != nil {
			return nil, err
		}
	}
	return repeats, nil
}

// Share is a part of the users that is replayed together: the users whose hash is between lo and
// hi, inclusive. Each call of AllUsers chooses a random seed for the hash.
type Share struct {
	seed   maphash.Seed
	lo, hi uint64
}

// AllUsers is the share of all users.
func AllUsers() Share { return Share{seed: maphash.MakeSeed(), hi: math.MaxUint64} }

// has reports whether a user is in s.
func (s *Share) has(user string) bool {
	h := maphash.String(s.seed, user)
	return s.lo <= h && h <= s.hi
}

// narrow reduces s to the lower half of its hashes. If s has only one hash, it returns false.
func (s *Share) narrow() bool {
	if s.lo == s.hi {
		return false
	}
	s.hi = s.lo + (s.hi-s.lo)/2
	return true
}

// Next returns the share after s; ok is false if s is the last share. The next share may have
// twice as many hashes as s, since s may have been narrowed only because of a few large users.
func (s *Share) Next() (_ Share, ok bool) {
	if s.hi == math.MaxUint64 {
		return Share{}, false
	}
	n := Share{seed: s.seed, lo: s.hi + 1, hi: math.MaxUint64}
	if size := s.hi - s.lo; size < (n.hi-n.lo)/2 {
		n.hi = n.lo + 2*size + 1
	}
	return n, true
}

// ReplayShare replays the users of the share s for which `wants` is true. If the states of these
// users need more than `budget` bytes of memory, it narrows s and drops the users who are no longer
// in s. After each page it calls `done` with the number of the page's records. `repeats` lists the
// repeated events; if it is nil, event keys detect them.
func (snapshot *Snapshot) ReplayShare(ctx context.Context, s *Share, wants func(string) bool, repeats map[events.Place]store.UserSet, budget int64, done func(records int)) (*Replay, error) {
	r := snapshot.newReplay(func(id string) bool { return s.has(id) && wants(id) }, repeats)
	// Computing r.weight is slow. So compute it only when the weight may have grown by an eighth
	// of the budget since the last computation.
	folded, weighAfter := 0, budget/8/foldWeight
	weigh := func(more int) {
		if folded += more; int64(folded) < weighAfter {
			return
		}
		folded = 0
		for len(r.Users) > 1 && r.weight() > budget && s.narrow() {
			for id := range r.Users {
				if !s.has(id) {
					r.drop(id)
				}
			}
		}
	}
	if err := snapshot.restoreUsers(ctx, r, nil, func() { weigh(1) }); err != nil {
		return nil, err
	}
	err := snapshot.visitAll(ctx, r.Keys, func(rec *events.Record, item store.Item, dead error) error {
		if dead == nil {
			weigh(r.fold(rec.Place, &item))
		}
		return nil
	}, done)
	return r, err
}

// weight returns the approximate size of the users of r in bytes.
func (r *Replay) weight() int64 {
	var n int64
	for _, u := range r.Users {
		n += badge.UserWeight + badge.ClaimWeight*int64(len(u.ReadsAhead))
		for _, c := range u.Conversations {
			n += badge.ConversationWeight + badge.RangeWeight*int64(len(c.Unread.Ranges)+len(c.Mentions.Ranges)+len(c.MarkedUnread.Ranges)+len(c.Recalled.Ranges))
		}
	}
	return n
}
