package store

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
	"github.com/badged/badged/internal/fold/badge"
)

// PathKey is the number of key columns in a row of a path, not counting the partition.
const PathKey = 2

// PathRow is a row of badged.paths. Only users with more than badge.MaxInline paths have such
// rows.
type PathRow struct {
	userID, category, numbers, level string
}

// Columns returns the columns of r. They point into r: scanning writes to r, and writing reads
// from r.
func (r *PathRow) Columns() []Column {
	return []Column{
		{Name: "user_id", target: &r.userID},
		{Name: "category", target: &r.category},
		{Name: "numbers", target: &r.numbers, kind: "jsonb"},
		{Name: "level", target: &r.level, kind: "badged.level", usual: "", null: true},
	}
}

// Set sets r to the row of a path of a user.
func (r *PathRow) Set(u *badge.User, p *badge.Path) {
	*r = PathRow{u.ID, p.Name, string(badge.AppendNumbers(nil, p.Numbers, "")), u.Paths.Levels[p.Name]}
}

// pathsSQL has the statements on rows of paths.
type pathsSQL struct{ load, loadLevels, remove, clear string }

func (t *Tables) newPathsSQL(suffix string) pathsSQL {
	fill := strings.NewReplacer("PATHS", fmt.Sprintf("badged.paths_p%02d%s", t.partition, suffix)).Replace
	return pathsSQL{
		load:       t.Paths.Read + "\n" + statements.Get("paths by key"),
		loadLevels: t.Paths.Read + "\n" + statements.Get("paths with levels"),
		remove:     fill(statements.Get("delete paths")),
		clear:      fill(statements.Get("delete the paths of users")),
	}
}

// QueueMoreLoads adds to batch the statements that load further rows. Call it after the first round
// of loads, since the rows of that round show which further rows the items need. Most batches need
// none.
func (t *Tables) QueueMoreLoads(batch *pgx.Batch, items []Item, s *badge.State) {
	if rooms, seqs := MoreMessages(items, s); len(seqs) > 0 {
		batch.Queue(t.rooms.loadChunks, rooms, seqs).Query(func(rows pgx.Rows) error { return ScanChunks(rows, s.Rooms) })
	}
	t.queuePathLoads(batch, items, s)
}

// queuePathLoads adds to batch the statements that load paths with rows of their own, if the
// items need them. The users of the items and their conversations must be loaded.
func (t *Tables) queuePathLoads(batch *pgx.Batch, items []Item, s *badge.State) {
	var fresh []string
	paths := false
	for id, u := range s.Users {
		paths = paths || u.Paths.HasRows()
		if u.Paths.HasRows() && !u.Paths.LevelsLoaded {
			u.Paths.LevelsLoaded = true
			fresh = append(fresh, id)
		}
	}
	if !paths {
		return
	}
	posted := map[string][]string{} // categories by room
	for i := range items {
		if d := &items[i].Event.Data; items[i].ToRoom() {
			posted[d.ConversationID] = append(posted[d.ConversationID], cmp.Or(d.Category, events.DefaultCategory))
		}
	}
	var users, categories []string
	need := func(u *badge.User, paths ...string) {
		for _, path := range paths {
			for ; path != ""; path = category.Above(path) {
				if !u.Paths.Knows(path) {
					u.Paths.Expect(path)
					users, categories = append(users, u.ID), append(categories, path)
				}
			}
		}
	}
	of := func(u *badge.User, c *badge.Conversation) {
		need(u, c.Category)
		if r := s.Rooms[c.ID]; r != nil { // a user who is no longer a member still has the room's category
			need(u, r.Category)
			need(u, posted[c.ID]...)
		}
	}
	for i := range items {
		d := &items[i].Event.Data
		for _, id := range items[i].Named() {
			u := s.Users[id]
			if !u.Paths.HasRows() {
				continue
			}
			if need(u, cmp.Or(d.Category, events.DefaultCategory)); items[i].Event.Type.OfConversations() {
				for _, c := range u.Conversations {
					of(u, c)
				}
			} else {
				of(u, u.Conversation(d.ConversationID))
			}
		}
	}
	load := func(rows pgx.Rows) error { return ScanPaths(rows, func(id string) *badge.User { return s.Users[id] }) }
	if len(fresh) > 0 {
		batch.Queue(t.paths.loadLevels, fresh).Query(load)
	}
	if len(users) > 0 {
		batch.Queue(t.paths.load, users, categories).Query(load)
	}
}

// ScanPaths reads rows of paths. userOf returns the user to which a path is added, or nil to skip
// the row.
func ScanPaths(rows pgx.Rows, userOf func(id string) *badge.User) error {
	var r PathRow
	_, err := pgx.ForEachRow(rows, targets(r.Columns()), func() error {
		u := userOf(r.userID)
		if u == nil {
			return nil
		}
		n, _, err := badge.ParseNumbers(r.numbers)
		if err != nil {
			return fmt.Errorf("numbers of category %q of user %q: %w", r.category, r.userID, err)
		}
		u.Paths.Load(r.category, n, r.level)
		return nil
	})
	return err
}

// pathWrites collects changed rows of paths as parameters of the statements that insert,
// update and delete them.
type pathWrites struct {
	row          PathRow
	fresh, known rows
	cleared      []string
	users, gone  []string
}

// add collects the changed paths of a user.
func (w *pathWrites) add(u *badge.User) {
	if u.Paths.Cleared {
		w.cleared = append(w.cleared, u.ID)
	}
	if !u.Paths.HasRows() {
		return
	}
	for _, p := range u.Paths.Touched {
		if _, toRow := u.Paths.Current(p); !toRow {
			continue
		}
		switch w.row.Set(u, p); {
		case !u.Paths.Has(p) && p.Stored:
			w.users, w.gone = append(w.users, u.ID), append(w.gone, p.Name)
		case !u.Paths.Has(p):
		case p.Stored:
			w.known.add(&w.row)
		default:
			w.fresh.add(&w.row)
		}
	}
}

// queue adds the statements for the collected paths to batch.
func (w *pathWrites) queue(batch *pgx.Batch, t *Tables) {
	if len(w.cleared) > 0 {
		batch.Queue(t.paths.clear, w.cleared)
	}
	if len(w.gone) > 0 {
		batch.Queue(t.paths.remove, w.users, w.gone)
	}
	w.fresh.queue(batch, t.Paths.insert)
	w.known.queue(batch, t.Paths.update)
}
