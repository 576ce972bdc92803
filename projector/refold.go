package projector

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
)

// This file folds the log again, in memory and beside the live tables, through
// the fold that fills them. Verifying, mending and explaining are what for.

// visit is called for a record of the log, decoded; dead is why it is not
// folded, in which case it is no item.
type visit func(r *events.Record, it item, dead error) error

// What is read of the log at once.
const (
	refoldPage      = 5000
	refoldPageBytes = 8 << 20
)

// each visits every record behind the base up to the position, in order, those
// of the archive first where there is one. keys, if not nil, are what newKeys has
// returned, and get what was remembered before. done is called now and then with
// how many records were visited since. While some are visited the next are
// decoded and those after them read, so v and done must not use the transaction.
func (in *instant) each(ctx context.Context, keys *keyMemory, v visit, done func(records int)) error {
	if err := in.restoreKeys(ctx, keys, nil); err != nil {
		return err
	}
	if err := in.scanTables(ctx, false); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	pages, decoded := make(chan page), make(chan decodedPage)
	g.Go(func() error {
		defer close(pages)
		if err := in.archivedPages(ctx, pages); err != nil {
			return err
		}
		return in.pages(ctx, pages)
	})
	g.Go(func() error {
		defer close(decoded)
		for p := range pages {
			records := make([]decodedRecord, len(p.records))
			for i := range p.records {
				records[i].record = &p.records[i]
				records[i].item, records[i].dead = in.item(&p.records[i])
			}
			select {
			case decoded <- decodedPage{records, p.generations}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	g.Go(func() error {
		for p := range decoded {
			if keys != nil {
				keys.extend(p.generations)
			}
			for i := range p.records {
				if err := v(p.records[i].record, p.records[i].item, p.records[i].dead); err != nil {
					return err
				}
			}
			done(len(p.records))
		}
		return nil
	})
	return g.Wait()
}

// page are records that are read at once, and the generations of keys of which
// some may begin among them or those that follow.
type page struct {
	records     []events.Record
	generations []generation
}

// decodedPage is a page, decoded.
type decodedPage struct {
	records     []decodedRecord
	generations []generation
}

// decodedRecord is a record with its item, or why there is none.
type decodedRecord struct {
	record *events.Record
	item   item
	dead   error
}

// pages sends every record of the log behind the base up to the position, in
// order.
func (in *instant) pages(ctx context.Context, to chan<- page) error {
	at := in.base.position
	for at.Before(in.position) {
		read, err := events.Read(ctx, in.tx, in.partition, at, refoldPage, refoldPageBytes)
		if err != nil {
			return err
		}
		if len(read.Records) == 0 {
			return nil
		}
		at = read.Records[len(read.Records)-1].Position
		if in.position.Before(at) {
			read.Records = in.upTo(read.Records)
		}
		select {
		case to <- page{records: read.Records}:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !read.More {
			return nil
		}
	}
	return nil
}

// maxSought is for how many users the log is searched; beyond, reading all of
// it is faster.
const maxSought = 16

// eachOf visits, in order, the records up to the position that name any of up
// to maxSought users, and some others: all that it takes to fold these users
// from the base. It goes through the partition twice, in the server; with an
// archive, which nobody searches, it visits everything. keys are as in each.
func (in *instant) eachOf(ctx context.Context, users []string, keys *keyMemory, v visit) error {
	if in.archive != nil {
		return in.each(ctx, keys, v, func(int) {})
	}
	if err := in.scanTables(ctx, true); err != nil {
		return err
	}
	wanted, err := in.search(ctx, users)
	if err != nil || len(wanted) == 0 {
		return err
	}
	uuids := make([][16]byte, 0, len(wanted))
	for id := range wanted {
		uuids = append(uuids, id)
	}
	if err := in.restoreKeys(ctx, keys, uuids); err != nil {
		return err
	}
	rows, err := in.tx.Query(ctx, `SELECT log.transaction_id::text::bigint, log."offset", log.uuid, log.payload::text, log.created_at
FROM unnest($3::uuid[]) AS wanted (uuid)
JOIN badged.`+events.Topic(in.partition)+` AS log USING (uuid)
WHERE (log.transaction_id, log."offset") <= ($1::bigint::text::xid8, $2) AND (log.transaction_id, log."offset") > ($4::bigint::text::xid8, $5)
ORDER BY log.transaction_id, log."offset"`, in.position.TransactionID, in.position.Offset, uuids, in.base.position.TransactionID, in.base.position.Offset)
	if err != nil {
		return fmt.Errorf("read partition %d: %w", in.partition, err)
	}
	var r events.Record
	_, err = pgx.ForEachRow(rows, []any{&r.Position.TransactionID, &r.Position.Offset, (*[16]byte)(&r.UUID), &r.Payload, &r.AppendedAt}, func() error {
		it, dead := in.item(&r)
		return v(&r, it, dead)
	})
	if err != nil {
		return fmt.Errorf("read partition %d: %w", in.partition, err)
	}
	return nil
}

// search returns the message ids of the records that eachOf visits: those that
// name the users, and those under the same key, of which an earlier one makes
// a later one a duplicate whomever it names.
func (in *instant) search(ctx context.Context, users []string) (map[uuid.UUID]struct{}, error) {
	where, args := named(users, 5)
	rows, err := in.tx.Query(ctx, `SELECT uuid, CASE WHEN `+foreign+` THEN payload::text END
FROM badged.`+events.Topic(in.partition)+`
WHERE (transaction_id, "offset") <= ($1::bigint::text::xid8, $2) AND (transaction_id, "offset") > ($3::bigint::text::xid8, $4)
  AND (`+foreign+` OR `+where+`)`,
		append([]any{in.position.TransactionID, in.position.Offset, in.base.position.TransactionID, in.base.position.Offset}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("search partition %d: %w", in.partition, err)
	}
	// The key of an event is the message id of its record, unless something
	// else than badged appended it.
	wanted := map[uuid.UUID]struct{}{}
	strangers := map[uuid.UUID][]uuid.UUID{} // message ids by key
	var id [16]byte
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &payload}, func() error {
		if payload == nil {
			wanted[id] = struct{}{}
			return nil
		}
		it, dead := in.item(&events.Record{Payload: payload})
		switch {
		case dead != nil && mayName(payload, users):
			wanted[id] = struct{}{}
		case dead == nil && slices.ContainsFunc(users, func(u string) bool { return slices.Contains(it.event.Data.UserIDs, u) }):
			wanted[id], wanted[it.key] = struct{}{}, struct{}{}
		case dead == nil:
			strangers[it.key] = append(strangers[it.key], id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("search partition %d: %w", in.partition, err)
	}
	for key, ids := range strangers {
		if _, ok := wanted[key]; ok {
			for _, id := range ids {
				wanted[id] = struct{}{}
			}
		}
	}
	return wanted, nil
}

// foreign is true of a record that badged did not append: the keys that it
// gives to records are version 8 UUIDs.
const foreign = `(get_byte(uuid_send(uuid), 6) >> 4 <> 8)`

// named returns a condition on a record that holds for every one that names
// any of the users, with its arguments from $first on. It looks at the text, as
// no index on who is named would earn its keep: users are quoted there, in one
// way only, except by whoever writes escapes that need not be.
func named(users []string, first int) (condition string, args []any) {
	escape := `%\\u%`
	var any strings.Builder
	for i, u := range users {
		fmt.Fprintf(&any, `strpos(payload::text, $%d) > 0 OR `, first+i)
		args = append(args, string(quoted(u)))
		if strings.ContainsAny(u, `"\/`) { // the other escapes there are
			escape = `%\\%`
		}
	}
	fmt.Fprintf(&any, `payload::text LIKE $%d`, first+len(users))
	return any.String(), append(args, escape)
}

// mayName reports whether a payload that is not understood has the text by
// which it would name any of the users.
func mayName(payload []byte, users []string) bool {
	return slices.ContainsFunc(users, func(u string) bool { return bytes.Contains(payload, quoted(u)) })
}

// quoted returns an id as it is in the log.
func quoted(id string) []byte {
	b, _ := jsontext.AppendQuote(nil, id) // what cannot be quoted was not logged
	return b
}

// refold is what the log says of some of the users.
type refold struct {
	users map[string]*user
	// wants says who these are.
	wants func(user string) bool
	// keys are those so far, nil where repeats are known.
	keys *keyMemory
	// repeats are the records whose key was remembered.
	repeats map[events.Position]struct{}
}

// newRefold returns one without users; repeats may be nil.
func (in *instant) newRefold(wants func(user string) bool, repeats map[events.Position]struct{}) *refold {
	r := &refold{users: map[string]*user{}, wants: wants, repeats: repeats}
	if repeats == nil {
		r.keys = in.newKeys()
	}
	return r
}

// fold folds an item, and returns for how many users.
func (r *refold) fold(at events.Position, it *item) int {
	if r.repeated(at, it.key) {
		return 0
	}
	d := &it.event.Data
	d.UserIDs = slices.DeleteFunc(d.UserIDs, func(id string) bool { return !r.wants(id) })
	if len(d.UserIDs) == 0 {
		return 0
	}
	for _, id := range d.UserIDs {
		if r.users[id] == nil {
			u := newUser(id)
			r.users[u.id] = u
		}
	}
	fold(&it.event, r.users)
	return len(d.UserIDs)
}

// repeated reports whether the key of a record was remembered, and remembers
// it.
func (r *refold) repeated(at events.Position, key uuid.UUID) bool {
	if r.keys == nil {
		_, again := r.repeats[at]
		return again
	}
	return r.keys.duplicate(key, at)
}

// user returns what the log says of a user; of one that it does not name, that
// nothing has happened.
func (r *refold) user(id string) *user {
	if u, ok := r.users[id]; ok {
		return u
	}
	return newUser(id)
}

// refoldOf folds the log again for up to maxSought users.
func (in *instant) refoldOf(ctx context.Context, users []string) (*refold, error) {
	r := in.newRefold(func(id string) bool { return slices.Contains(users, id) }, nil)
	if err := in.restoreUsers(ctx, r, users, func() {}); err != nil {
		return nil, err
	}
	err := in.eachOf(ctx, users, r.keys, func(rec *events.Record, it item, dead error) error {
		if dead == nil {
			r.fold(rec.Position, &it)
		}
		return nil
	})
	return r, err
}

// What is held in memory, in bytes, roughly.
const (
	keyWeight          = 32
	userWeight         = 300
	conversationWeight = 400
	rangeWeight        = 24
	// foldWeight is the most that folding an event adds for one user.
	foldWeight = userWeight + conversationWeight + 3*rangeWeight
)

// repeats returns the records whose key was remembered, of as many keys as length
// says there are. It holds so many keys at a
// time as weigh budget bytes, and goes through the log as often as that takes.
func (in *instant) repeats(ctx context.Context, length, budget int64, done func(records int)) (map[events.Position]struct{}, error) {
	repeats := map[events.Position]struct{}{}
	passes := uint64(length*keyWeight/budget) + 1 //nolint:gosec // neither is negative
	for pass := range passes {
		keys := in.newKeys()
		// Keys are hashes: their last bytes spread them evenly.
		keys.wants = func(key uuid.UUID) bool { return binary.BigEndian.Uint64(key[8:])%passes == pass }
		err := in.each(ctx, keys, func(r *events.Record, it item, dead error) error {
			if dead != nil || !keys.wants(it.key) {
				return nil
			}
			if keys.duplicate(it.key, r.Position) {
				repeats[r.Position] = struct{}{}
			}
			return nil
		}, done)
		if err != nil {
			return nil, err
		}
	}
	return repeats, nil
}

// share is a part of the users, by a hash of their ids that is from lo to hi.
type share struct {
	seed   maphash.Seed
	lo, hi uint64
}

// everybody is the share of all users.
func everybody() share { return share{seed: maphash.MakeSeed(), hi: math.MaxUint64} }

func (s *share) has(user string) bool {
	h := maphash.String(s.seed, user)
	return s.lo <= h && h <= s.hi
}

// narrow halves s, and reports false where it cannot.
func (s *share) narrow() bool {
	if s.lo == s.hi {
		return false
	}
	s.hi = s.lo + (s.hi-s.lo)/2
	return true
}

// next returns the share after s, twice as large, since s may have been narrowed
// for a few users who weigh much; ok is false after the last.
func (s *share) next() (_ share, ok bool) {
	if s.hi == math.MaxUint64 {
		return share{}, false
	}
	n := share{seed: s.seed, lo: s.hi + 1, hi: math.MaxUint64}
	if size := s.hi - s.lo; size < (n.hi-n.lo)/2 {
		n.hi = n.lo + 2*size + 1
	}
	return n, true
}

// refoldShare folds the log again for those of a share of the users that also
// wants lets in. Where they weigh more than budget bytes it narrows the share.
func (in *instant) refoldShare(ctx context.Context, s *share, wants func(string) bool, repeats map[events.Position]struct{}, budget int64, done func(records int)) (*refold, error) {
	r := in.newRefold(func(id string) bool { return s.has(id) && wants(id) }, repeats)
	// Weighing takes long, and is done when the excess can be an eighth.
	folded, weighAfter := 0, budget/8/foldWeight
	weigh := func(more int) {
		if folded += more; int64(folded) < weighAfter {
			return
		}
		folded = 0
		for len(r.users) > 1 && r.weight() > budget && s.narrow() {
			for id := range r.users {
				if !s.has(id) {
					delete(r.users, id)
				}
			}
		}
	}
	if err := in.restoreUsers(ctx, r, nil, func() { weigh(1) }); err != nil {
		return nil, err
	}
	err := in.each(ctx, r.keys, func(rec *events.Record, it item, dead error) error {
		if dead == nil {
			weigh(r.fold(rec.Position, &it))
		}
		return nil
	}, done)
	return r, err
}

// weight returns how many bytes the users of r take, roughly.
func (r *refold) weight() int64 {
	var n int64
	for _, u := range r.users {
		n += userWeight
		for _, c := range u.conversations {
			n += conversationWeight + rangeWeight*int64(len(c.unread.ranges)+len(c.mentions.ranges)+len(c.recalled.ranges))
		}
	}
	return n
}
