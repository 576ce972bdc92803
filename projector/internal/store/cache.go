package store

import "github.com/badged/badged/projector/internal/badge"

// Cache holds the users and rooms that the owner of a partition has folded, as the
// tables have them, so that a batch loads only the others. It is right as long
// as there is no other writer. The fence detects another owner, which moves
// the position; any other writer of rows raises the partition's revision,
// which each batch compares. Then, and after any error, the cache is cleared.
//
// It has two halves. Users and rooms in use go into Young; when that is full it
// becomes Old, and what was in Old and not used since is dropped.
type Cache struct {
	Young, Old Cached
	// weight is that of Young, in bytes, roughly; Limit is when it is full.
	weight, Limit int
}

// Cached is a half of a cache.
type Cached struct {
	Users map[string]*badge.User
	Rooms map[string]*badge.Room
}

func newCached() Cached {
	return Cached{map[string]*badge.User{}, map[string]*badge.Room{}}
}

// NewCache returns an empty cache of roughly limit bytes.
func NewCache(limit int) *Cache {
	return &Cache{Limit: limit / 2, Young: newCached()}
}

// User returns a cached user, nil if there is none.
func (c *Cache) User(id string) *badge.User {
	if u, ok := c.Young.Users[id]; ok {
		return u
	}
	u, ok := c.Old.Users[id]
	if !ok {
		return nil
	}
	delete(c.Old.Users, id)
	c.Young.Users[id] = u
	c.weight += u.Weight
	return u
}

// Room returns a cached room, nil if there is none.
func (c *Cache) Room(id string) *badge.Room {
	if r, ok := c.Young.Rooms[id]; ok {
		return r
	}
	r, ok := c.Old.Rooms[id]
	if !ok {
		return nil
	}
	delete(c.Old.Rooms, id)
	c.Young.Rooms[id] = r
	c.weight += r.Weight
	return r
}

// Keep caches users and rooms whose rows have just been written as they are.
func (c *Cache) Keep(users []*badge.User, rooms map[string]*badge.Room) {
	for _, u := range users {
		before := u.Weight
		u.Settle()
		if before == 0 { // else User has put it into Young
			c.Young.Users[u.ID] = u
		}
		c.weight += u.Weight - before
	}
	for id, r := range rooms {
		if former := c.Room(id); former != nil { // the same, or as it was loaded again
			c.weight -= former.Weight
		}
		r.Settle()
		c.Young.Rooms[id] = r
		c.weight += r.Weight
	}
	if c.weight > c.Limit {
		c.Old, c.Young, c.weight = c.Young, newCached(), 0
	}
}

// Drop drops what a batch that was not committed has changed.
func (c *Cache) Drop(s *badge.State) {
	for id := range s.Users {
		if u, ok := c.Young.Users[id]; ok {
			c.weight -= u.Weight
			delete(c.Young.Users, id)
		}
		delete(c.Old.Users, id)
	}
	for id := range s.Rooms {
		if r, ok := c.Young.Rooms[id]; ok {
			c.weight -= r.Weight
			delete(c.Young.Rooms, id)
		}
		delete(c.Old.Rooms, id)
	}
}

// Clear drops everything.
func (c *Cache) Clear() {
	c.Young, c.Old, c.weight = newCached(), Cached{}, 0
}
